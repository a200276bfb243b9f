// Values of messages that another launcher has sent: nothing in them is relied upon before it was
// looked at.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "lockstep/base/json.h"

namespace lockstep::launch {

// The text of `key`; empty where there is none.
inline std::string text_in(const Json& message, const std::string& key) {
  const Json* const found = message.find(key);
  return found != nullptr && found->is_text() ? found->as_text() : "";
}

// The number of `key`, where it is there and within bounds.
inline std::optional<std::int64_t> int_in(
    const Json& message, const std::string& key, std::int64_t least,
    std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  const Json* const found = message.find(key);
  if (found == nullptr || !found->is_int()) return std::nullopt;
  const std::int64_t value = found->as_int();
  return value >= least && value <= most ? std::optional(value) : std::nullopt;
}

// As much of a text as a message has room for, however it is written there.
inline std::string clipped(const std::string& text) { return text.substr(0, 600); }

}  // namespace lockstep::launch
