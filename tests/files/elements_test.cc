#include "lockstep/files/elements.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "lockstep/base/random.h"

namespace lockstep::files {
namespace {

bool is_nan_bf16(std::uint16_t bits) { return (bits & 0x7fffU) > 0x7f80U; }

// The bf16 next to `value`, by comparing distances: both neighbours are exact in f64. Beyond the
// largest bf16 the next step would be to 2^128, which stands for infinity.
std::uint16_t nearest_bf16(double value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double size = std::abs(value);
  if (std::isinf(size)) return static_cast<std::uint16_t>(sign | 0x7f80);
  const auto real = [](int bits) {
    return bits == 0x7f80
               ? std::ldexp(1.0, 128)
               : static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
  };
  int low = 0;
  for (int step = 0x4000; step > 0; step /= 2)
    if (low + step < 0x7f80 && real(low + step) <= size) low += step;
  const double below = size - real(low);
  const double above = real(low + 1) - size;
  const int nearest = below < above || (below == above && low % 2 == 0) ? low : low + 1;
  return static_cast<std::uint16_t>(sign | nearest);
}

TEST(Elements, RoundToTheNearestBf16) {
  std::int64_t tried = 0;
  for (std::uint32_t high = 0; high < 0x10000; ++high)
    for (const std::uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      const float value = std::bit_cast<float>((high << 16) | low);
      if (std::isnan(value)) {
        EXPECT_TRUE(is_nan_bf16(f32_to_bf16(value))) << high << " " << low;
        continue;
      }
      ASSERT_EQ(f32_to_bf16(value), nearest_bf16(value)) << value;
      ++tried;
    }
  EXPECT_GT(tried, 390000);
}

TEST(Elements, RoundF64OnlyOnce) {
  const RandomStream stream(1, "f64");
  for (std::uint64_t i = 0; i < 30000; ++i) {
    const auto high = static_cast<std::uint32_t>(stream.bits(2 * i)) & 0xffffU;
    const float tie = std::bit_cast<float>((high << 16) | 0x8000U);
    if (!std::isfinite(tie)) continue;
    // Just beside a tie, nearer than an f32 can tell.
    const double offset = std::ldexp(std::abs(static_cast<double>(tie)), -40);
    for (const double value :
         {tie - offset, static_cast<double>(tie), tie + offset,
          std::ldexp(stream.uniform(2 * i + 1) - 0.5, static_cast<int>(i % 300) - 150)})
      ASSERT_EQ(f64_to_bf16(value), nearest_bf16(value)) << value;
  }
  EXPECT_TRUE(is_nan_bf16(f64_to_bf16(std::nan(""))));
}

TEST(Elements, F16IsReadAsItsFormulaSays) {
  std::vector<std::uint16_t> all(0x10000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> read(all.size());
  convert(std::as_bytes(std::span(all)), DType::kF16, std::as_writable_bytes(std::span(read)),
          DType::kF32);
  std::vector<std::uint16_t> narrow(all.size());
  convert(std::as_bytes(std::span(all)), DType::kF16, std::as_writable_bytes(std::span(narrow)),
          DType::kBF16);
  for (int bits = 0; bits < 0x10000; ++bits) {
    const int exponent = (bits >> 10) & 31;
    const int mantissa = bits & 1023;
    const float got = read[static_cast<std::size_t>(bits)];
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(got));
      continue;
    }
    double size = exponent == 31  ? INFINITY
                  : exponent == 0 ? std::ldexp(mantissa, -24)
                                  : std::ldexp(1024 + mantissa, exponent - 25);
    if ((bits & 0x8000) != 0) size = -size;
    ASSERT_EQ(static_cast<double>(got), size) << bits;
    ASSERT_EQ(std::signbit(got), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(narrow[static_cast<std::size_t>(bits)], nearest_bf16(size)) << bits;
  }
}

TEST(Elements, WideningComesBackExactly) {
  std::vector<std::uint16_t> all(0x10000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const DType wide : {DType::kF32, DType::kF64}) {
    std::vector<std::byte> middle(all.size() * size_of(wide) + 1);
    const std::span<std::byte> odd = std::span(middle).subspan(1);  // at no alignment
    convert(std::as_bytes(std::span(all)), DType::kBF16, odd, wide);
    std::vector<std::uint16_t> back(all.size());
    convert(odd, wide, std::as_writable_bytes(std::span(back)), DType::kBF16);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!is_nan_bf16(all[i])) {
        ASSERT_EQ(back[i], all[i]);
      }
  }
  EXPECT_FALSE(can_round_to(DType::kF16));
}

TEST(Elements, WideningChangesNoValue) {
  const auto widened = [](DType from, std::uint16_t bits, DType to) {
    std::vector<std::byte> target(size_of(to));
    convert(std::as_bytes(std::span(&bits, 1)), from, target, to);
    double value = 0;
    float narrow = 0;
    if (to == DType::kF64) {
      std::memcpy(&value, target.data(), 8);
    } else {
      std::memcpy(&narrow, target.data(), 4);
      value = narrow;
    }
    return value;
  };
  // By the formula of IEEE 754, for all finite ones.
  for (int bits = 0; bits < 65536; ++bits)
    for (const auto& [from, exponent_bits, bias] :
         {std::tuple(DType::kBF16, 8, 127), std::tuple(DType::kF16, 5, 15)}) {
      const int fraction_bits = 15 - exponent_bits;
      const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
      const double fraction = bits & ((1 << fraction_bits) - 1);
      const double sign = bits >> 15 != 0 ? -1.0 : 1.0;
      if (exponent == (1 << exponent_bits) - 1) {
        const double found = widened(from, static_cast<std::uint16_t>(bits), DType::kF64);
        EXPECT_EQ(std::isnan(found), fraction != 0);
        continue;
      }
      const double expected = exponent == 0
                                  ? std::ldexp(sign * fraction, 1 - bias - fraction_bits)
                                  : std::ldexp(sign * (fraction + std::ldexp(1.0, fraction_bits)),
                                               exponent - bias - fraction_bits);
      ASSERT_EQ(widened(from, static_cast<std::uint16_t>(bits), DType::kF32), expected) << bits;
      ASSERT_EQ(widened(from, static_cast<std::uint16_t>(bits), DType::kF64), expected) << bits;
    }
  EXPECT_FALSE(widens(DType::kF64, DType::kF32));
  EXPECT_FALSE(widens(DType::kF16, DType::kBF16));
  EXPECT_TRUE(widens(DType::kI64, DType::kI64));
}

}  // namespace
}  // namespace lockstep::files
