#include "lockstep/mesh/divisors.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::mesh {
namespace {

TEST(NearestDivisors, AgreesWithTryingEveryNumber) {
  for (std::int64_t n = 1; n <= 200; ++n) {
    for (std::int64_t wanted = 1; wanted <= 210; ++wanted) {
      std::int64_t below = wanted;
      while (n % below != 0) --below;
      std::int64_t above = wanted;
      while (above <= n && n % above != 0) ++above;
      const NearestDivisors nearest = nearest_divisors(n, wanted);
      ASSERT_EQ(nearest.below, below) << n << " " << wanted;
      ASSERT_EQ(nearest.above.has_value(), above <= n) << n << " " << wanted;
      ASSERT_EQ(nearest.above.value_or(above), above) << n << " " << wanted;
    }
  }
}

TEST(NearestDivisors, StaysCheapAndTrueForHugeNumbers) {
  const std::int64_t n = std::numeric_limits<std::int64_t>::max();  // 7^2 x 73 x 127 x ...
  const NearestDivisors nearest = nearest_divisors(n, 50);
  EXPECT_EQ(nearest.below, 49);
  EXPECT_EQ(nearest.above, 73);
}

TEST(NearestDivisors, ReadsAsAChoice) {
  EXPECT_EQ(to_text(nearest_divisors(10, 4)), "2 or 5");
  EXPECT_EQ(to_text(nearest_divisors(10, 5)), "5");
  EXPECT_EQ(to_text(nearest_divisors(10, 40)), "10");
}

TEST(CheckedProduct, NoticesOverflow) {
  const std::int64_t max = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(checked_product(3, 5), 15);
  EXPECT_EQ(checked_product(max, 1), max);
  EXPECT_FALSE(checked_product(max / 2 + 1, 2).has_value());
}

}  // namespace
}  // namespace lockstep::mesh
