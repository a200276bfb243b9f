// What AdamW, the sum of squares and exact sums do to one element or tile, for CPUs and GPUs: also
// compiled by nvcc, so it includes nothing of LibTorch.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define LS_HOST_DEVICE __host__ __device__
#else
#define LS_HOST_DEVICE __attribute__((always_inline))  // into clones for other processors
#endif

namespace lockstep::optim {

// Of one update, the same for every element.
template <class T>
struct AdamWFactors {
  T keep_first, add_first, keep_second, add_second, keep_param, step, root, eps, grad_scale;
};

template <class T>
LS_HOST_DEVICE inline void update_element(const AdamWFactors<T>& f, T grad, T& param, T& first,
                                          T& second) {
  const T g = grad * f.grad_scale;
  const T m = f.keep_first * first + f.add_first * g;
  const T v = f.keep_second * second + f.add_second * g * g;
  first = m;
  second = v;
  param = f.keep_param * param - f.step * m / (std::sqrt(v) / f.root + f.eps);
}

// Adds a double to words of an ExactSum (base/exact_sum.h): calls add(word, value), which may be an
// atomic addition, because integers do not mind their order. Three digits of 32 bits, so that 2^30
// addends fit a word.
template <class Add>
LS_HOST_DEVICE inline void add_exactly(double x, Add add) {
  constexpr int kDigits = 68;
  std::uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  const auto exponent = static_cast<unsigned>(bits >> 52) & 0x7ff;
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  if (exponent == 0x7ff)
    return add(fraction != 0 ? kDigits : bits >> 63 != 0 ? kDigits + 2 : kDigits + 1, 1);
  const unsigned is_normal = exponent != 0 ? 1 : 0, shift = exponent - is_normal;
  const std::uint64_t significand = fraction | std::uint64_t{is_normal} << 52;
  const unsigned offset = shift % 32;
  const std::uint64_t high = significand >> (32 - offset);  // up to 52 bits
  const std::int64_t sign = bits >> 63 != 0 ? -1 : 1;
  const int digit = static_cast<int>(shift / 32);
  add(digit, sign * static_cast<std::int64_t>(significand << offset & 0xffffffff));
  add(digit + 1, sign * static_cast<std::int64_t>(high & 0xffffffff));
  if (high >> 32 != 0) add(digit + 2, sign * static_cast<std::int64_t>(high >> 32));
}

}  // namespace lockstep::optim
