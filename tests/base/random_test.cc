#include "lockstep/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Rows "philox4x32 10" of kat_vectors in Random123, the authors' library.
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Initial weights and sample orders hang on these bits: a change makes every old run
// unrepeatable. The answers come from a second implementation, in Python.
TEST(RandomStream, KeepsItsBits) {
  const RandomStream stream(0x0123456789abcdef, "blocks.0.attention.wq");
  EXPECT_EQ(stream.bits(0), 0x409527489c698a31u);
  EXPECT_EQ(stream.bits(std::uint64_t{1} << 32), 0xdd47fbde5a5f3ecdu);
  EXPECT_EQ(stream.uniform(7), 0x1.727ea52f49dacp-2);
  EXPECT_EQ(stream.below(1000, 7), 361u);
}

TEST(RandomStream, DependsOnEveryPartOfSeedNameAndIndex) {
  std::set<std::uint64_t> seen;
  int drawn = 0;
  for (const std::uint64_t seed : {0ULL, 1ULL, 1ULL << 32})
    for (const char* name : {"", "a", "b", "ab"})
      for (const std::uint64_t index : {0ULL, 1ULL, 1ULL << 32, ~0ULL}) {
        seen.insert(RandomStream(seed, name).bits(index));
        ++drawn;
      }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(drawn));
}

TEST(RandomStream, UniformsFillTheUnitIntervalEvenly) {
  const RandomStream stream(1, "uniform");
  constexpr int kDraws = 160'000, kBins = 16;
  int bins[kBins] = {};
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double u = stream.uniform(i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++bins[static_cast<int>(u * kBins)];
    ASSERT_EQ(stream.below(kBins, i), static_cast<std::uint64_t>(u * kBins));
  }
  // Five standard deviations of a bin's count, sqrt(n p (1 - p)) = 97.
  for (const int count : bins) EXPECT_NEAR(count, kDraws / kBins, 5 * 97);
  EXPECT_EQ(stream.below(1, 0), 0u);
  EXPECT_THROW(stream.below(0, 0), BrokenInvariant);
}

// Sample moments 0, 1, 0, 3 within five of their standard errors sqrt(1, 2, 15, 96) / sqrt(n).
TEST(RandomStream, NormalsHaveTheMomentsOfTheNormalDistribution) {
  const RandomStream stream(2, "normal");
  constexpr int kDraws = 200'000;
  double sums[4] = {};
  int beyond_two = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double z = stream.normal(i);
    ASSERT_LE(std::abs(z), 8.6);
    double power = 1;
    for (double& sum : sums) sum += power *= z;
    beyond_two += std::abs(z) > 2 ? 1 : 0;
  }
  const double want[] = {0, 1, 0, 3}, variance[] = {1, 2, 15, 96};
  for (int k = 0; k < 4; ++k)
    EXPECT_NEAR(sums[k] / kDraws, want[k], 5 * std::sqrt(variance[k] / kDraws)) << "moment " << k;
  EXPECT_NEAR(beyond_two / static_cast<double>(kDraws), std::erfc(std::sqrt(2.0)), 0.0025);
}

TEST(RandomStream, ManyNormalsAreThoseOfTheirIndices) {
  const RandomStream stream(7, "many");
  for (const std::uint64_t first :
       {std::uint64_t{0}, std::uint64_t{3}, (std::uint64_t{1} << 32) - 5})
    for (const std::size_t count : {0, 1, 255, 256, 257, 1000}) {
      std::vector<double> drawn(count, 99);
      stream.normals(first, drawn);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(drawn[i], stream.normal(first + i)) << i;
    }
}

TEST(RandomStream, NeighboursAreNotCorrelated) {
  const RandomStream stream(3, "neighbours"), other(3, "others");
  constexpr int kDraws = 100'000;
  double lag = 0, cross = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    lag += stream.normal(i) * stream.normal(i + 1);
    cross += stream.normal(i) * other.normal(i);
  }
  EXPECT_NEAR(lag / kDraws, 0, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(cross / kDraws, 0, 5 / std::sqrt(kDraws));
}

}  // namespace
}  // namespace lockstep
