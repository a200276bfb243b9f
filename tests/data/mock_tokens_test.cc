#include "lockstep/data/mock_tokens.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace lockstep::data {
namespace {

struct Sample {
  std::vector<std::int64_t> tokens, labels;
  bool operator==(const Sample&) const = default;
};

Sample read(const TokenSource& source, std::int64_t number, std::size_t length = 64) {
  Sample sample{std::vector<std::int64_t>(length), std::vector<std::int64_t>(length)};
  source.read(number, sample.tokens, sample.labels);
  return sample;
}

TEST(MockTokens, AreAFunctionOfSeedAndSample) {
  const MockTokens source(7, 50, true);
  const Sample later = read(source, 9);
  read(source, 3);
  EXPECT_EQ(read(source, 9), later);
  EXPECT_EQ(read(MockTokens(7, 50, true), 9), later);
  EXPECT_NE(read(MockTokens(8, 50, true), 9), later);
  EXPECT_NE(read(source, 10), later);
  EXPECT_EQ(read(MockTokens(7, 50, true, 5), 4), later);
}

TEST(MockTokens, LabelsAreTheFollowingTokens) {
  const MockTokens source(7, 50, false);
  for (std::int64_t number = 0; number < 20; ++number) {
    const Sample sample = read(source, number);
    int by_rule = 0;
    for (std::size_t i = 0; i + 1 < sample.tokens.size(); ++i) {
      EXPECT_EQ(sample.labels[i], sample.tokens[i + 1]);
      by_rule += sample.labels[i] == (3 * sample.tokens[i] + 1) % 50 ? 1 : 0;
    }
    EXPECT_GT(by_rule, 40);
    EXPECT_LT(by_rule, 64);
    for (std::int64_t token : sample.tokens) EXPECT_TRUE(token >= 0 && token < 50);
  }
}

TEST(MockTokens, IgnoreADifferentShareInEverySample) {
  const MockTokens source(7, 50, true);
  std::set<std::size_t> counts;
  for (std::int64_t number = 0; number < 20; ++number) {
    const Sample sample = read(source, number, 256);
    std::size_t ignored = 0;
    for (std::int64_t label : sample.labels) ignored += label == kIgnoredLabel ? 1 : 0;
    EXPECT_LT(ignored, 160U);
    EXPECT_EQ(source.valid_labels(number, 256), 256 - static_cast<std::int64_t>(ignored));
    EXPECT_EQ(MockTokens(7, 50, false).valid_labels(number, 256), 256);
    counts.insert(ignored);
  }
  EXPECT_GT(counts.size(), 10U);
}

}  // namespace
}  // namespace lockstep::data
