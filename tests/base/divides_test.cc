#include "lockstep/base/divides.h"

#include <gtest/gtest.h>

#include <random>

namespace lockstep {
namespace {

TEST(Divides, AgreesWithFmod) {
  std::mt19937_64 random(1);
  int divided = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto part = static_cast<double>(1 + random() % (i % 2 == 0 ? 16 : 1 << 20));
    const auto whole = static_cast<double>(random() % (std::int64_t{1} << 52));
    EXPECT_EQ(divides(part, whole), std::fmod(whole, part) == 0) << part << " " << whole;
    EXPECT_TRUE(divides(part, part * static_cast<double>(i)));
    divided += divides(part, whole) ? 1 : 0;
  }
  EXPECT_GT(divided, 1000);
  EXPECT_TRUE(divides(3, 0));
  EXPECT_FALSE(divides(8, 0.5));
  EXPECT_FALSE(divides(1, 0.5));
}

}  // namespace
}  // namespace lockstep
