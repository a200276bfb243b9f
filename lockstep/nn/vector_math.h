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
