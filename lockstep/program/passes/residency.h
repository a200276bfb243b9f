// Which units stay gathered when only so many may.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::program {

// From the use uses[first], for which the unit is gathered, to its last use before it is freed.
struct Stay {
  std::int32_t unit = 0;
  std::int32_t first = 0;
  std::int32_t last = 0;
  bool operator==(const Stay&) const = default;
};

// The stays of the units used in this order when at most `capacity` of them, the one in use
// included, are kept: of those kept, the one whose next use is farthest goes first, which takes the
// fewest gathers (Belady, "A study of replacement algorithms for a virtual-storage computer", IBM
// Systems Journal 1966). Ascending by `first`. REQUIRES: capacity >= 1.
std::vector<Stay> farthest_next_use(std::span<const std::int32_t> uses, int capacity);

}  // namespace lockstep::program
