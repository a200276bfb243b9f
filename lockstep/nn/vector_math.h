// The exponential function and roundings in plain arithmetic, which the compiler turns into vectors
// (base/vector_clones.h). Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "lockstep/base/vector_clones.h"

namespace lockstep::nn {

// e^x, off by less than 3 2^-24 of it; beyond 60 on either side that of 60, so that products with
// it stay clear of numbers below 2^-126, which a processor handles a hundred times slower; NaN of
// NaN. x = n ln 2 + r with |r| <= ln(2) / 2, where the first term that the series leaves out, r^8 /
// 8!, is below 6e-9.
LS_INTO_CLONES float exponential(float x) {
  constexpr float kShift = 12582912.0F;  // 1.5 2^23: adding it leaves an integer in the last bits
  constexpr float kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;  // the first has 9 bits
  x = x < -60.0F ? -60.0F : x;
  x = x > 60.0F ? 60.0F : x;
  const float shifted = x * 1.44269504F + kShift;
  const float n = shifted - kShift;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float sum = 1.0F / 5040;
  sum = sum * r + 1.0F / 720;
  sum = sum * r + 1.0F / 120;
  sum = sum * r + 1.0F / 24;
  sum = sum * r + 1.0F / 6;
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  sum = sum * r + 1.0F;
  return sum * std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127) << 23);
}

// Not in vectors: f64 is there to check the others against. Beyond 700 that of 700, which is
// finite.
LS_INTO_CLONES double exponential(double x) { return std::exp(std::clamp(x, -700.0, 700.0)); }

// tanh(x), off by less than 6 2^-24 of it: a quotient of polynomials, the fit that Eigen has
// (ptanh_float), which meets 1 beyond 8. NaN of NaN.
LS_INTO_CLONES float hyperbolic_tangent(float x) {
  constexpr float kEnd = 7.90531110763549805F;
  x = x < -kEnd ? -kEnd : x;
  x = x > kEnd ? kEnd : x;
  const float s = x * x;
  float above = -2.76076847742355e-16F;
  above = above * s + 2.00018790482477e-13F;
  above = above * s - 8.60467152213735e-11F;
  above = above * s + 5.12229709037114e-08F;
  above = above * s + 1.48572235717979e-05F;
  above = above * s + 6.37261928875436e-04F;
  above = above * s + 4.89352455891786e-03F;
  float below = 1.19825839466702e-06F;
  below = below * s + 1.18534705686654e-04F;
  below = below * s + 2.26843463243900e-03F;
  below = below * s + 4.89352518554385e-03F;
  return x * above / below;
}
LS_INTO_CLONES double hyperbolic_tangent(double x) { return std::tanh(x); }

// `x` as an element of type T, to the nearest, ties to even. NaNs stay NaNs if arithmetic on bf16
// or f32 made them; one with all bits set would not.
template <class T>
LS_INTO_CLONES T rounded_to(double x) {
  return static_cast<T>(x);
}
template <class T>
LS_INTO_CLONES T rounded_to(float x) {
  if constexpr (sizeof(T) == 2) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t nearest = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return {static_cast<std::uint16_t>(nearest), c10::BFloat16::from_bits()};
  } else {
    return x;
  }
}

}  // namespace lockstep::nn
