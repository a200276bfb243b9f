#include "lockstep/base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <compare>
#include <iostream>
#include <limits>
#include <random>
#include <vector>

namespace lockstep {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kMax = std::numeric_limits<double>::max();
// Adds 52 bits to the upper of its two digits, the most there is.
const double kHeaviest = 2 * std::nextafter(2.0, 1.0);
constexpr double kTiny = std::numeric_limits<double>::denorm_min();

using Random = std::mt19937_64;
using Addends = std::vector<double>;

std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }

double exact_sum(const Addends& xs) {
  ExactSum sum;
  for (const double x : xs) sum.add(x);
  return sum.result();
}

// --- The oracle: two's complement integers in units of 2^-1075, added by hand. ---

class Integer {
 public:
  // Adds significand * 2^exponent. REQUIRES: exponent >= -1075.
  void add(std::int64_t significand, int exponent) {
    const auto shift = static_cast<std::size_t>(exponent + 1075);
    const auto magnitude = static_cast<std::uint64_t>(std::abs(significand));
    Integer term;
    term.limbs_[shift / 64] = magnitude << shift % 64;
    term.limbs_[shift / 64 + 1] = magnitude >> 1 >> (63 - shift % 64);
    if (significand < 0) term.negate();
    add(term);
  }
  void add(double x) {
    int exponent = 0;
    double fraction = std::frexp(x, &exponent);
    exponent -= 53;
    while (exponent < -1075) fraction /= 2, ++exponent;
    add(static_cast<std::int64_t>(std::ldexp(fraction, 53)), exponent);
  }
  void add(const Integer& other) {
    unsigned carry = 0;
    for (std::size_t i = 0; i < limbs_.size(); ++i) {
      const std::uint64_t partial = limbs_[i] + carry;
      limbs_[i] = partial + other.limbs_[i];
      carry = partial < carry || limbs_[i] < partial ? 1 : 0;
    }
  }
  std::strong_ordering operator<=>(const Integer& other) const {
    const auto top = static_cast<std::int64_t>(limbs_.back());
    const auto other_top = static_cast<std::int64_t>(other.limbs_.back());
    if (top != other_top) return top <=> other_top;
    return std::lexicographical_compare_three_way(limbs_.rbegin(), limbs_.rend(),
                                                  other.limbs_.rbegin(), other.limbs_.rend());
  }

 private:
  void negate() {
    for (std::uint64_t& limb : limbs_) limb = ~limb;
    Integer one;
    one.limbs_[0] = 1;
    add(one);
  }
  std::array<std::uint64_t, 36> limbs_{};  // least significant first
};

// The neighbour of +-kMax, as rounding sees it, is +-2^1024.
void add_neighbour(Integer& to, double x, double toward) {
  const double neighbour = std::nextafter(x, toward);
  if (std::isinf(neighbour))
    to.add(toward > 0 ? 1 : -1, 1024);
  else
    to.add(neighbour);
}

// Is `result` the double nearest to the sum of finite `xs`, ties to even? Decided by comparing
// twice the sum with the sums of `result` and its neighbours, so without any rounding here.
bool is_nearest(const Addends& xs, double result) {
  Integer once;
  for (const double x : xs) once.add(x);
  Integer twice = once;
  twice.add(once);
  if (std::isinf(result)) {  // from half way on, because kMax is odd
    Integer half_way;
    half_way.add(std::copysign(kMax, result));
    half_way.add(result > 0 ? 1 : -1, 1024);
    return result > 0 ? twice >= half_way : twice <= half_way;
  }
  Integer below, above;
  below.add(result), above.add(result);
  add_neighbour(below, result, -kInfinity);
  add_neighbour(above, result, kInfinity);
  const bool is_even = (bits(result) & 1) == 0;
  return is_even ? below <= twice && twice <= above : below < twice && twice < above;
}

// What IEEE addition says about addends of which some are not finite.
double non_finite_sum(const Addends& xs) {
  double sum = 0;
  for (const double x : xs)
    if (!std::isfinite(x)) sum += x;
  return std::isnan(sum) ? std::bit_cast<double>(std::uint64_t{0x7ff8000000000000}) : sum;
}

// --- Addends that are hard to sum. ---

std::uint64_t below(Random& random, std::uint64_t bound) { return random() % bound; }

double with_exponent(Random& random, std::uint64_t lowest, std::uint64_t highest) {
  const std::uint64_t exponent = lowest + below(random, highest - lowest + 1);
  return std::bit_cast<double>((random() & 0x800fffffffffffff) | exponent << 52);
}

Addends spread(Random& random, std::size_t count, std::uint64_t lowest, std::uint64_t highest) {
  Addends xs(count);
  for (double& x : xs) x = with_exponent(random, lowest, highest);
  return xs;
}

// Large terms that cancel in full and leave something far smaller.
Addends cancelling(Random& random, std::size_t count) {
  Addends xs = spread(random, count, 0, 2046);
  for (std::size_t i = 0; i < count; ++i) xs.push_back(-xs[i]);
  xs.push_back(with_exponent(random, 0, below(random, 2047)));
  return xs;
}

// Half an ulp beside a number, sometimes with a crumb that breaks the tie.
Addends half_way(Random& random) {
  const double x = with_exponent(random, 54, 2046);
  const double half_ulp = std::ldexp(1.0, std::ilogb(x) - 53);
  Addends xs = {x, below(random, 2) == 0 ? half_ulp : -half_ulp};
  if (below(random, 2) == 0) xs.push_back(below(random, 2) == 0 ? kTiny : -kTiny);
  return xs;
}

Addends with_non_finite(Random& random, std::size_t count) {
  static constexpr double kOdd[] = {kInfinity, -kInfinity, kNan, -kNan, -0.0, kMax};
  Addends xs = spread(random, count, 0, 2046);
  for (std::uint64_t left = 1 + below(random, 3); left > 0; --left)
    xs.push_back(kOdd[below(random, std::size(kOdd))]);
  return xs;
}

Addends hard_case(Random& random, std::size_t kind) {
  const std::size_t count = below(random, 25);
  switch (kind % 8) {
    case 0:
      return spread(random, count, 0, 2046);
    case 1:
      return spread(random, count, 0, 0);  // denormals
    case 2:
      return spread(random, count, 0, 3);  // across the border of the denormals
    case 3:
      return spread(random, count, 2040, 2046);  // across the border of overflow
    case 4:
      return cancelling(random, count);
    case 5:
      return half_way(random);
    case 6:
      return with_non_finite(random, count);
    default:
      return spread(random, count, 1000, 1060);  // as in real sums
  }
}

// --- Ways to add the same addends. ---

std::vector<ExactSum> parts_of(const Addends& xs, Random& random) {
  std::vector<ExactSum> parts(1 + below(random, 6));
  for (const double x : xs) parts[below(random, parts.size())].add(x);
  return parts;
}

ExactSum merged_as_words(const std::vector<ExactSum>& parts) {
  ExactSum::Words total{};
  for (const ExactSum& part : parts) {
    const ExactSum::Words words = part.to_words();
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += words[i];
  }
  return ExactSum::from_words(total);
}

ExactSum merged_in_random_tree(std::vector<ExactSum> parts, Random& random) {
  while (parts.size() > 1) {
    std::shuffle(parts.begin(), parts.end(), random);
    const ExactSum last = parts.back();
    parts.pop_back();
    parts.back() = merged_as_words({parts.back(), last});
  }
  return parts.front();
}

TEST(ExactSum, IsTheNearestDoubleInAnyOrderAndAnyPartition) {
  constexpr std::size_t kCases = 120'000;
  Random random(20110912);
  std::size_t finite = 0;
  for (std::size_t c = 0; c < kCases; ++c) {
    SCOPED_TRACE(c);
    Addends xs = hard_case(random, c);
    ExactSum sum;
    for (const double x : xs) sum.add(x);
    const double result = sum.result();

    if (std::ranges::all_of(xs, [](double x) { return std::isfinite(x); })) {
      ++finite;
      ASSERT_TRUE(is_nearest(xs, result)) << result;
      ASSERT_TRUE(result != 0 || bits(result) == 0) << "negative zero";
    } else {
      ASSERT_EQ(bits(result), bits(non_finite_sum(xs)));
    }

    std::shuffle(xs.begin(), xs.end(), random);
    ASSERT_EQ(bits(exact_sum(xs)), bits(result));
    const auto parts = parts_of(xs, random);
    const ExactSum merged = merged_in_random_tree(parts, random);
    const ExactSum added = merged_as_words(parts);
    ASSERT_EQ(bits(merged.result()), bits(result));
    ASSERT_EQ(bits(added.result()), bits(result));
    ASSERT_EQ(merged.to_words(), sum.to_words());
    ASSERT_EQ(added.to_words(), sum.to_words());
  }
  RecordProperty("cases", static_cast<int>(kCases));
  std::cout << "cases: " << kCases << ", of these " << finite << " against the oracle\n";
}

TEST(ExactSum, KnownSums) {
  EXPECT_EQ(exact_sum({1e308, 1e308, -1e308}), 1e308);
  EXPECT_EQ(exact_sum({1e100, 1.0, -1e100}), 1.0);
  EXPECT_EQ(exact_sum({1.0, 0x1p-53}), 1.0);
  EXPECT_EQ(exact_sum({1.0, 0x1p-53, kTiny}), 1.0 + 0x1p-52);
  EXPECT_EQ(exact_sum({0.1, 0.2, -0.3}), 0x1p-55);  // the errors of the three literals
  EXPECT_EQ(exact_sum({kMax, kMax}), kInfinity);
  EXPECT_EQ(exact_sum({-kMax, -kMax}), -kInfinity);
  EXPECT_EQ(exact_sum({kMax, kMax, -kMax, -kMax, kTiny}), kTiny);
  EXPECT_EQ(exact_sum({kMax, 0x1p970}), kInfinity);  // a tie, and kMax is odd
  EXPECT_EQ(exact_sum({kMax, std::nextafter(0x1p970, 0)}), kMax);
}

TEST(ExactSum, ZerosAndSpecials) {
  for (const Addends& xs : {Addends{}, {-0.0}, {-0.0, -0.0}, {-kTiny, kTiny}, {kMax, -kMax}})
    EXPECT_EQ(bits(exact_sum(xs)), bits(0.0));
  EXPECT_EQ(exact_sum({kInfinity, -kMax}), kInfinity);
  EXPECT_EQ(exact_sum({-kInfinity, kMax, kMax}), -kInfinity);
  constexpr std::uint64_t kCanonical = 0x7ff8000000000000;
  const double payload = std::bit_cast<double>(std::uint64_t{0xfff0000000000001});
  for (const Addends& xs : {Addends{kInfinity, -kInfinity}, {payload}, {kInfinity, kNan, 1.0}})
    EXPECT_EQ(bits(exact_sum(xs)), kCanonical);
}

TEST(ExactSum, WholeNumbersAddAsIntegers) {
  Random random(7);
  std::int64_t want = 0;
  ExactSum doubles, floats;
  for (int i = 0; i < 1000; ++i) {
    const auto x = static_cast<std::int64_t>(below(random, 1 << 24)) - (1 << 23);
    want += x;
    doubles.add(static_cast<double>(x));
    floats.add(static_cast<float>(x));
  }
  EXPECT_EQ(doubles.result(), static_cast<double>(want));
  EXPECT_EQ(floats.to_words(), doubles.to_words());
}

// The significand and the scale that fill digits fastest, far beyond what they hold without
// carries.
TEST(ExactSum, ManyAddendsCarryInTime) {
  constexpr std::int64_t kSignificand = (std::int64_t{1} << 53) - 1;
  constexpr std::int64_t kCount = 3'000'000;
  __extension__ using Wide = __int128;
  const auto want = static_cast<double>(Wide{kSignificand} * kCount);
  for (const int exponent : {0, 13})  // at 13 the upper digit takes 52 bits of each
    for (const double sign : {1.0, -1.0}) {
      ExactSum sum;
      const double x = sign * std::ldexp(static_cast<double>(kSignificand), exponent);
      for (std::int64_t i = 0; i < kCount; ++i) sum.add(x);
      EXPECT_EQ(sum.result(), sign * std::ldexp(want, exponent));
    }
}

TEST(ExactSum, ManyMergesCarryInTime) {
  ExactSum full;
  for (int i = 0; i < 1023; ++i) full.add(kHeaviest);  // as loaded as it gets without a carry
  ExactSum chain;
  for (int i = 0; i < 5000; ++i) chain = merged_as_words({full, chain});
  ExactSum want;
  for (int i = 0; i < 5000 * 1023; ++i) want.add(kHeaviest);
  EXPECT_EQ(chain.to_words(), want.to_words());
  EXPECT_EQ(merged_as_words({chain, chain}).result(), 2 * want.result());
}

TEST(ExactSum, AsManyWordsAsPromisedAddWithoutOverflow) {
  for (const double x : {-kTiny, kMax, -kMax, 1.0 / 3}) {
    ExactSum sum;
    for (int i = 0; i < 100; ++i) sum.add(x), sum.add(-kTiny);
    ExactSum::Words words = sum.to_words();
    for (std::int64_t& word : words)
      ASSERT_FALSE(__builtin_mul_overflow(word, ExactSum::kMaxMergedWords, &word));
    const ExactSum merged = ExactSum::from_words(words);
    for (int doubling = 1; doubling < ExactSum::kMaxMergedWords; doubling *= 2)
      sum = merged_as_words({sum, sum});
    EXPECT_EQ(merged.to_words(), sum.to_words()) << x;

    // And then take as many addends as any other, and a merge.
    ExactSum more = merged;
    for (int i = 0; i < 1023; ++i) more.add(kHeaviest), sum.add(kHeaviest);
    EXPECT_EQ(merged_as_words({more, more}).to_words(), merged_as_words({sum, sum}).to_words())
        << x;
  }
}

}  // namespace
}  // namespace lockstep
