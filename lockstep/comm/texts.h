// Texts of any length between the members of a group, for agreements outside of steps. All members call;
// each throws CommError.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

// What member 0 passes, on every member.
std::string share_text(Communicator& group, std::string text, Deadline deadline);

// On member 0, what each member passes, by member; elsewhere nothing.
std::vector<std::string> gather_texts(Communicator& group, std::string text, Deadline deadline);

}  // namespace lockstep::comm
