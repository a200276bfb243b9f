// The sum of doubles, exactly, rounded once at the end. Because nothing is lost on the way, the
// order of the addends and how they are spread over ranks make no difference to a single bit.
//
// The accumulator is one fixed-point number wide enough for every double and every sum of up to
// 2^62 of them (Kulisch's long accumulator; with lazy carries as in Neal, "Fast exact summation
// using small and large superaccumulators", arXiv:1505.05571). About 5 ns an addend.
//
// Infinities and NaNs are kept beside it: the result is NaN (bits 0x7ff8000000000000) if a NaN or
// both infinities were added, else the infinity that was added, else the rounded sum. An empty sum
// and a sum that is exactly zero are +0.0, whatever the signs of the zeros added.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lockstep {

// One thread at a time.
class ExactSum {
 public:
  // 68 digits, least significant first, then the counters of NaN, +infinity and -infinity.
  static constexpr std::size_t kNumDigits = 68;
  static constexpr std::size_t kNumWords = kNumDigits + 3;
  using Words = std::array<std::int64_t, kNumWords>;

  // The words of this many sums, each from to_words(), can be added element by element.
  static constexpr std::int64_t kMaxMergedWords = std::int64_t{1} << 30;

  void add(double x);

  // The nearest double to the exact sum, ties to even; beyond the largest double, infinity.
  double result() const;

  // Equal words if and only if the exact sums (and the kinds of non-finite addends) are equal.
  // The elementwise integer sum of the words of up to kMaxMergedWords accumulators, in any order
  // and any tree, is an accepted argument of from_words and means the merged accumulator. So an
  // integer all_reduce adds doubles exactly.
  Words to_words() const;
  static ExactSum from_words(const Words& words);
  void add_to(std::int64_t* words) const;  // kNumWords of them, element by element

 private:
  // Value = sum over i of digits_[i] * 2^(32 i - 1074). Digits are signed and may leave 32 bits:
  // |digits_[i]| < load_ * 2^52 <= 2^62, because carry() brings them home in time.
  static constexpr std::int32_t kMaxLoad = 1024;

  void add_non_finite(double x);
  void carry();

  std::array<std::int64_t, kNumDigits> digits_{};
  std::int32_t load_ = 1;
  bool has_nan_ = false;
  bool has_positive_infinity_ = false;
  bool has_negative_infinity_ = false;
};

inline void ExactSum::add(double x) {
  constexpr std::uint64_t kFractionMask = (std::uint64_t{1} << 52) - 1;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto exponent = static_cast<unsigned>(bits >> 52) & 0x7ff;
  if (exponent == 0x7ff) [[unlikely]]
    return add_non_finite(x);
  if (load_ >= kMaxLoad) [[unlikely]]
    carry();
  ++load_;
  // A denormal has the scale of exponent 1 and no hidden bit.
  const unsigned is_normal = exponent != 0 ? 1 : 0;
  const unsigned shift = exponent - is_normal;
  const std::uint64_t significand = (bits & kFractionMask) | std::uint64_t{is_normal} << 52;
  // significand << shift % 32 has up to 84 bits: the low 32 go to one digit, the rest to the next.
  const unsigned offset = shift % 32;
  const auto low = static_cast<std::int64_t>(significand << offset & 0xffffffff);
  const auto high = static_cast<std::int64_t>(significand >> (32 - offset));
  const std::int64_t sign = static_cast<std::int64_t>(bits) >> 63;  // 0 or -1
  std::int64_t* digit = &digits_[shift / 32];
  digit[0] += (low ^ sign) - sign;
  digit[1] += (high ^ sign) - sign;
}

}  // namespace lockstep
