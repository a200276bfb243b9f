#include "lockstep/nn/gelu.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/nn/oracle.h"

namespace lockstep::nn {
namespace {

using Real = long double;

// With the argument a = 2u of the sigmoid s, and how far f32 or f64 may be off, in roundings: a is
// off by seven of itself (three of a constant, a sum, three products), which are 7|a| of e^-a; that
// has three of its own, s and 1 - s four more, of which a product leaves three where s is 1. And
// e^-a ends at e^60.
struct Exact {
  Real value, slope, value_bound, slope_bound;
  explicit Exact(Real x) {
    const Real k = std::sqrt(2 / std::numbers::pi_v<Real>);
    const Real u = k * (x + 0.044715L * x * x * x), du = k * (1 + 3 * 0.044715L * x * x);
    const Real s = 1 / (1 + std::exp(-2 * u)), rest = 1 / (1 + std::exp(2 * u));
    const Real off = 7 * std::abs(2 * u) + 7;
    value = x * s;
    slope = s + x * s * rest * 2 * du;
    value_bound = std::abs(value) * (3 + rest * off);
    slope_bound = s * (2 + rest * off) + std::abs(x * s * rest * 2 * du) * (2 * off + 6);
  }
};

at::Tensor spread(at::ScalarType type) {
  return random("x", {20011}, at::kDouble, 1.0).pow(3).mul_(14.0).to(type);
}

template <class T>
void expect_close(at::ScalarType type, double rounding) {
  const at::Tensor x = spread(type), y = nn::gelu(x);
  at::Tensor d = random("d", {x.numel()}, type);
  const at::Tensor d_before = d.clone();
  gelu_grad(x, d);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const Real at = x.const_data_ptr<T>()[i], end = std::abs(at) * std::exp(Real{-59.99L});
    const Exact exact(at);
    ASSERT_LE(std::abs(y.const_data_ptr<T>()[i] - exact.value), rounding * exact.value_bound + end);
    const Real from = d_before.const_data_ptr<T>()[i];
    ASSERT_LE(std::abs(d.const_data_ptr<T>()[i] - from * exact.slope),
              rounding * std::abs(from) * (exact.slope_bound + std::abs(exact.slope)) +
                  300 * end)  // its last factor is at most 300 here
        << x.const_data_ptr<T>()[i];
  }
}

TEST(Gelu, FollowsTheFormula) {
  expect_close<float>(at::kFloat, std::ldexp(1.0, -24));
  expect_close<double>(at::kDouble, std::ldexp(1.0, -53));
}

TEST(Gelu, FarFromZeroIsAStep) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16})
    for (const double at : {25.0, 40.0, 1e3, 1e4}) {
      const at::Tensor x = at::tensor({-at, at}, at::TensorOptions(at::kDouble)).to(type),
                       d = at::ones_like(x);
      const double far = x[1].item<double>();
      const at::Tensor y = nn::gelu(x);
      gelu_grad(x, d);
      EXPECT_NEAR(y[0].item<double>(), 0, 1e-20) << at;
      EXPECT_EQ(y[1].item<double>(), far);
      EXPECT_NEAR(d[0].item<double>(), 0, 1e-12) << at;
      EXPECT_EQ(d[1].item<double>(), 1) << at;
    }
}

TEST(Gelu, OfNarrowElementsIsThatOfWideOnesRoundedOnce) {
  const at::Tensor x = spread(at::kBFloat16), wide = x.to(at::kFloat);
  EXPECT_TRUE(at::equal(nn::gelu(x), nn::gelu(wide).to(at::kBFloat16)));
  const at::Tensor d = random("d", {x.numel()}, at::kBFloat16), d_wide = d.to(at::kFloat);
  gelu_grad(x, d);
  gelu_grad(wide, d_wide);
  EXPECT_TRUE(at::equal(d, d_wide.to(at::kBFloat16)));
}

TEST(Gelu, AnElementsBitsDoNotDependOnItsPlace) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor x = spread(type), whole = nn::gelu(x), d = random("d", {x.numel()}, type);
    const at::Tensor d_whole = d.clone();
    gelu_grad(x, d_whole);
    for (const std::int64_t begin : {1, 5, 31})
      for (const std::int64_t length : {1, 7, 16, 61}) {
        const auto part = [&](const at::Tensor& of) { return of.narrow(0, begin, length); };
        EXPECT_TRUE(at::equal(nn::gelu(part(x)), part(whole)));
        const at::Tensor d_part = part(d).clone();
        gelu_grad(part(x), d_part);
        EXPECT_TRUE(at::equal(d_part, part(d_whole)));
      }
  }
}

// Rounded once, and a row's bits are its own.
TEST(GeGlu, FollowsGelu) {
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::Tensor pair = random("pair", {7, 2 * 53}, type, 3.0);
    const at::Tensor d = random("d", {7, 53}, type);
    const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor gate = pair.narrow(1, 0, 53).to(wide).contiguous();
    const at::Tensor up = pair.narrow(1, 53, 53).to(wide);
    EXPECT_TRUE(at::equal(geglu(pair), nn::gelu(gate).mul_(up).to(type)));
    const at::Tensor d_up = nn::gelu(gate).mul_(d.to(wide)).to(type);
    const at::Tensor d_gate = up.clone(at::MemoryFormat::Contiguous).mul_(d.to(wide));
    gelu_grad(gate, d_gate);
    const at::Tensor made = geglu_grad(pair, d);
    EXPECT_TRUE(at::equal(made.narrow(1, 53, 53), d_up));
    EXPECT_TRUE(at::equal(made.narrow(1, 0, 53), d_gate.to(type)));
    EXPECT_TRUE(at::equal(geglu(pair.narrow(0, 3, 1)), geglu(pair).narrow(0, 3, 1)));
  }
}

}  // namespace
}  // namespace lockstep::nn
