// Codes that only who has the key can make, as RFC 2104 says. Any thread.
#pragma once

#include <string_view>

#include "lockstep/base/hash.h"

namespace lockstep {

Sha256Digest hmac_sha256(std::string_view key, std::string_view text);

// In a time that tells nothing of how far they agree.
bool equal(const Sha256Digest& a, const Sha256Digest& b);

}  // namespace lockstep
