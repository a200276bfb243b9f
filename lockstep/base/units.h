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

inline constexpr double kGib = 1024.0 * 1024 * 1024;  // bytes

// "0 B", "512 B", "64 MiB", "1.5 GiB": binary multiples, at most three significant digits after the
// unit is chosen.
std::string to_text(Bytes bytes);
// "12 us", "3.4 ms", "2.75 s", "4 min 10 s", "3 h 12 min", "2.5 days".
std::string to_text(Seconds seconds);

// "67108864", "64MiB", "64 MiB", "1.5GB" (decimal multiples for kB MB GB TB, binary for KiB MiB GiB
// TiB). Refuses negative, fractional-byte and overflowing sizes.
Result<Bytes> parse_bytes(std::string_view text);

// What a suffix multiplies by: a thousand and its powers of what is counted, such as tokens and
// money; 1024 and its square of what is divided in halves, such as positions, batches and devices.
enum class Suffixes : std::uint8_t { kNone, kDecimal, kMoney, kBinary };

// "1T", "500B", "1.5 M", "2e12" (k, M, B or G, T; either case); "$2.5" and "$1M" of money; "8k" is
// 8192 and "1M" 1048576 where they are binary. Refuses units ("8kB"), digits in groups ("1,000")
// and a suffix beside an exponent.
Result<double> parse_amount(std::string_view text, Suffixes suffixes);

// "405,853,388,800".
std::string with_commas(std::int64_t number);

// "1 layout", "1,024 layouts", "2 processes".
std::string counted(std::int64_t number, const std::string& noun);

// The fewest digits that read back as the same number: "0.1", "5e-4", "3", "inf".
std::string shortest(double number);

// printf into a string; g++ 12 has no <format>.
[[gnu::format(printf, 1, 2)]] std::string strf(const char* format, ...);

}  // namespace lockstep
