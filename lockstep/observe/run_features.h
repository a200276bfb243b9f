// What runs are told apart by when some are learned from: of what their step or their memory
// consists, and how large and of what kind they are. Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/cost/analytic/price.h"

namespace lockstep::observe {

inline constexpr std::size_t kParts = 9;
inline constexpr std::size_t kTraits = 13;

struct RunFeatures {
  std::array<double, kParts> shares = {};   // of the whole: add up to 1
  std::array<double, kTraits> traits = {};  // sizes as logarithms, kinds as numbers
  std::string_view family = {};             // of the device
};

// Parts of a step's time, of which terms that fail alike are one.
inline constexpr std::array<const char*, kParts> kTimeParts = {
    "compute", "head", "tensor", "expert", "pipe", "data", "bubble", "optimizer", "spread"};

RunFeatures time_features(const cost::PriceRequest& request, const cost::StepTime& time);
RunFeatures memory_features(const cost::PriceRequest& request, const cost::Price& price,
                            cost::Reading reading);

}  // namespace lockstep::observe
