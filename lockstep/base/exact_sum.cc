#include "lockstep/base/exact_sum.h"

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

constexpr std::int64_t kDigitMask = 0xffffffff;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kNanBits = 0x7ff8000000000000;

using Digits = std::array<std::int64_t, ExactSum::kNumDigits>;

// Brings every digit but the last into [0, 2^32); the last keeps the sign. The right shift of a
// negative number rounds down (C++20), which is what a borrow needs.
void propagate(Digits& digits) {
  std::int64_t carry = 0;
  for (std::size_t i = 0; i + 1 < digits.size(); ++i) {
    const std::int64_t digit = digits[i] + carry;
    digits[i] = digit & kDigitMask;
    carry = digit >> 32;
  }
  digits.back() += carry;
}

// Bits [first, first + 64) of propagated, non-negative digits; zeros beyond the end.
std::uint64_t bits_from(const Digits& digits, std::size_t first) {
  const auto digit = [&](std::size_t i) {
    return i < digits.size() ? static_cast<std::uint64_t>(digits[i]) : 0;
  };
  const std::size_t i = first / 32, offset = first % 32;
  const std::uint64_t low = digit(i) | digit(i + 1) << 32;
  return offset == 0 ? low : low >> offset | digit(i + 2) << (64 - offset);
}

bool any_bit_below(const Digits& digits, std::size_t end) {
  for (std::size_t i = 0; i < end / 32; ++i)
    if (digits[i] != 0) return true;
  const std::int64_t mask = (std::int64_t{1} << end % 32) - 1;
  return (digits[end / 32] & mask) != 0;
}

// `digits` are propagated, non-negative and not all zero.
double round_magnitude(const Digits& digits) {
  std::size_t top = digits.size() - 1;
  while (digits[top] == 0) --top;
  const auto top_bit = 32 * top + std::bit_width(static_cast<std::uint64_t>(digits[top])) - 1;
  // Below 2^53 units of 2^-1074 the integer is its own encoding, denormal or not.
  if (top_bit <= 52) return std::bit_cast<double>(bits_from(digits, 0));
  if (top_bit > 52 + 2045) return kInfinity;
  const std::size_t last_bit = top_bit - 52;
  const std::uint64_t significand = bits_from(digits, last_bit) & ((std::uint64_t{1} << 53) - 1);
  const bool half = (bits_from(digits, last_bit - 1) & 1) != 0;
  const bool round_up = half && ((significand & 1) != 0 || any_bit_below(digits, last_bit - 1));
  // The hidden bit adds one to the exponent field, and a significand that rounds up to 2^53
  // another, up to infinity.
  const std::uint64_t encoded = (std::uint64_t{last_bit} << 52) + significand + round_up;
  return std::bit_cast<double>(encoded);
}

}  // namespace

void ExactSum::carry() {
  propagate(digits_);
  load_ = 1;
}

void ExactSum::add_non_finite(double x) {
  has_nan_ |= std::isnan(x);
  has_positive_infinity_ |= x == kInfinity;
  has_negative_infinity_ |= x == -kInfinity;
}

double ExactSum::result() const {
  if (has_nan_ || (has_positive_infinity_ && has_negative_infinity_))
    return std::bit_cast<double>(kNanBits);
  if (has_positive_infinity_) return kInfinity;
  if (has_negative_infinity_) return -kInfinity;

  Digits digits = digits_;
  propagate(digits);
  const bool negative = digits.back() < 0;
  if (negative) {
    for (std::int64_t& digit : digits) digit = -digit;
    propagate(digits);
  }
  if (digits == Digits{}) return 0.0;
  const double magnitude = round_magnitude(digits);
  return negative ? -magnitude : magnitude;
}

ExactSum::Words ExactSum::to_words() const {
  ExactSum carried = *this;
  carried.carry();
  Words words{};
  for (std::size_t i = 0; i < kNumDigits; ++i) words[i] = carried.digits_[i];
  words[kNumDigits] = has_nan_ ? 1 : 0;
  words[kNumDigits + 1] = has_positive_infinity_ ? 1 : 0;
  words[kNumDigits + 2] = has_negative_infinity_ ? 1 : 0;
  return words;
}

void ExactSum::add_to(std::int64_t* words) const {
  for (const std::int64_t word : to_words()) *words++ += word;
}

ExactSum ExactSum::from_words(const Words& words) {
  ExactSum sum;
  for (std::size_t i = 0; i < kNumDigits; ++i) sum.digits_[i] = words[i];
  sum.carry();
  sum.has_nan_ = words[kNumDigits] != 0;
  sum.has_positive_infinity_ = words[kNumDigits + 1] != 0;
  sum.has_negative_infinity_ = words[kNumDigits + 2] != 0;
  return sum;
}

}  // namespace lockstep
