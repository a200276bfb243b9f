// Nearest legal values for messages about sizes that a degree does not divide.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::mesh {

// The largest divisor of `n` that is at most `wanted`, and the smallest that is at least `wanted`
// (absent when wanted > n). Costs O(sqrt(n)), at most a million steps: above 10^12 a divisor may be
// overlooked, never invented. REQUIRES: n >= 1, wanted >= 1.
struct NearestDivisors {
  std::int64_t below = 1;
  std::optional<std::int64_t> above;
};
NearestDivisors nearest_divisors(std::int64_t n, std::int64_t wanted);

// "2", or "2 or 5".
std::string to_text(const NearestDivisors& nearest);

// Product of positive numbers; absent when it does not fit.
std::optional<std::int64_t> checked_product(std::int64_t a, std::int64_t b);

}  // namespace lockstep::mesh
