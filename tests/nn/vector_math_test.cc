#include "lockstep/nn/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::nn {
namespace {

TEST(VectorMath, ExponentialsAreWithinThreeRoundings) {
  double worst = 0;
  for (int i = -600000; i <= 600000; ++i) {
    const auto x = static_cast<float>(i * 1e-4);
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(exponential(x) - exact) / exact);
  }
  EXPECT_LT(worst, std::ldexp(3.0, -24));
  EXPECT_EQ(exponential(0.0F), 1.0F);
}

TEST(VectorMath, ExponentialsBeyondSixtyAreThoseOfSixty) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float x : {60.0F, 61.0F, 1e30F, kInf}) {
    EXPECT_EQ(exponential(x), exponential(60.0F));
    EXPECT_EQ(exponential(-x), exponential(-60.0F));
  }
  EXPECT_TRUE(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorMath, TangentsAreWithinSixRoundings) {
  double worst = 0;
  for (int i = 1; i <= 1000000; ++i) {
    const auto x = static_cast<float>(i * 1.2e-5);
    const double exact = std::tanh(static_cast<double>(x));
    worst = std::max(worst, std::abs(hyperbolic_tangent(x) - exact) / exact);
    ASSERT_EQ(hyperbolic_tangent(-x), -hyperbolic_tangent(x));
    ASSERT_LE(hyperbolic_tangent(x), 1.0F);
  }
  EXPECT_LT(worst, std::ldexp(6.0, -24));
  EXPECT_EQ(hyperbolic_tangent(0.0F), 0.0F);
  EXPECT_TRUE(std::isnan(hyperbolic_tangent(std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorMath, RoundsAsLibTorchDoes) {
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 4093) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isnan(x)) continue;
    ASSERT_EQ(rounded_to<c10::BFloat16>(x).x, c10::BFloat16(x).x) << x;
  }
  for (const std::uint32_t bits : {0x7fc00000U, 0xffc00000U, 0x7f810000U, 0xffff0000U})
    EXPECT_TRUE(
        std::isnan(static_cast<float>(rounded_to<c10::BFloat16>(std::bit_cast<float>(bits)))));
  EXPECT_EQ(rounded_to<float>(0.1F), 0.1F);
}

}  // namespace
}  // namespace lockstep::nn
