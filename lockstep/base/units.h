// Quantities with their unit in the type: Bytes (whole), Seconds, Flops (real). Plain numbers
// appear only at the edges.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/result.h"

namespace lockstep {

template <class Tag, class Rep>
struct Quantity {
  Rep value = 0;

  auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity other) { return value += other.value, *this; }
  constexpr Quantity& operator-=(Quantity other) { return value -= other.value, *this; }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return {a.value + b.value}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return {a.value - b.value}; }
  friend constexpr Quantity operator*(Quantity a, Rep k) { return {a.value * k}; }
  friend constexpr Quantity operator*(Rep k, Quantity a) { return {k * a.value}; }
};

using Bytes = Quantity<struct BytesTag, std::int64_t>;
using Seconds = Quantity<struct SecondsTag, double>;
using Flops = Quantity<struct FlopsTag, double>;

// "0 B", "512 B", "64 MiB", "1.5 GiB": binary multiples, at most three significant digits after the
// unit is chosen.
std::string to_text(Bytes bytes);
// "12 us", "3.4 ms", "2.75 s", "3 h 12 min".
std::string to_text(Seconds seconds);
// "989 TFLOP", "2.52 TFLOP".
std::string to_text(Flops flops);

// "67108864", "64MiB", "64 MiB", "1.5GB" (decimal multiples for kB MB GB TB, binary for KiB MiB GiB
// TiB). Refuses negative, fractional-byte and overflowing sizes.
Result<Bytes> parse_bytes(std::string_view text);

// "405,853,388,800".
std::string with_commas(std::int64_t number);

// printf into a string; g++ 12 has no <format>.
[[gnu::format(printf, 1, 2)]] std::string strf(const char* format, ...);

}  // namespace lockstep
