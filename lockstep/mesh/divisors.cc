#include "lockstep/mesh/divisors.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::mesh {
namespace {
constexpr std::int64_t kMaxSteps = 1'000'000;
}  // namespace

NearestDivisors nearest_divisors(std::int64_t n, std::int64_t wanted) {
  LS_CHECK(n >= 1 && wanted >= 1, "n = ", n, ", wanted = ", wanted);
  NearestDivisors nearest;
  const auto offer = [&](std::int64_t divisor) {
    if (divisor <= wanted) nearest.below = std::max(nearest.below, divisor);
    if (divisor >= wanted) nearest.above = std::min(nearest.above.value_or(n), divisor);
  };
  for (std::int64_t d = 1; d <= n / d && d <= kMaxSteps; ++d) {
    if (n % d != 0) continue;
    offer(d);
    offer(n / d);
  }
  return nearest;
}

std::string to_text(const NearestDivisors& nearest) {
  std::string text = std::to_string(nearest.below);
  if (nearest.above && *nearest.above != nearest.below)
    text += " or " + std::to_string(*nearest.above);
  return text;
}

std::optional<std::int64_t> checked_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

}  // namespace lockstep::mesh
