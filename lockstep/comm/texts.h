// Texts between the members of a group, for agreements outside of steps. All members call; each
// throws CommError, also where a peer tells a length that no text has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

// Bytes. The longest are parts of a manifest, of which one has some 20 bytes for each MiB that a
// rank saves.
constexpr std::int64_t kMaxText = std::int64_t{1} << 28;

// What member 0 passes, on every member.
std::string share_text(Communicator& group, std::string text, Deadline deadline);

// On member 0, what each member passes, by member; elsewhere nothing.
std::vector<std::string> gather_texts(Communicator& group, std::string text, Deadline deadline);

// A Result as a text, to be sent or left in a store. What encoded() does not make throws
// WorldError.
std::string encoded(const Result<std::string>& result);
Result<std::string> decoded(const std::string& text);

}  // namespace lockstep::comm
