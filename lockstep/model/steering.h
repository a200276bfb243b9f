// Selection biases that steer routers to extremes, so that a layout shows which is wrong where
// experts, and with them ranks, meet all tokens or none.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/model/arch.h"

namespace lockstep::model {

// Which experts tokens are sent to.
enum class Routing : std::uint8_t {
  kScores,  // those that the router likes
  kTies,    // of equal ones: the first
  kLast,    // the same as every other token, behind all others
  kHalf,    // the first half
  kRandom,  // in every block others, whatever the token
};
inline constexpr EnumNames<Routing, 5> kRoutings = {{"scores", "ties", "last", "half", "random"}};
inline std::string_view to_text(Routing routing) { return kRoutings.name_of(routing); }

// Of all experts, unit by unit of those that have some. Far above any score, and so above what
// steps add. REQUIRES: a model with selection biases.
std::vector<float> steering_biases(const Model& model, Routing routing);

}  // namespace lockstep::model
