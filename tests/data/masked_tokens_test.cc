#include "lockstep/data/masked_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/data/mock_tokens.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kSamples = 8, kSeq = 16;
using Places = std::set<std::pair<std::int64_t, std::int64_t>>;  // sample and position

// Where labels count in the second step; all of these are the source's.
Places counted(LabelMask mask) {
  const auto source = [] { return std::make_unique<MockTokens>(7, 50, /*ignore_some=*/false); };
  const MaskedTokens masked(source(), mask, kSamples);
  Places places;
  for (std::int64_t sample = kSamples; sample < 2 * kSamples; ++sample) {
    std::vector<std::int64_t> tokens(kSeq), labels(kSeq), all_tokens(kSeq), all(kSeq);
    masked.read(sample, tokens, labels);
    source()->read(sample, all_tokens, all);
    EXPECT_EQ(tokens, all_tokens);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] == kIgnoredLabel) continue;
      EXPECT_EQ(labels[i], all[i]);
      places.emplace(sample - kSamples, i);
    }
    EXPECT_EQ(masked.valid_labels(sample, kSeq), kSeq - std::ranges::count(labels, kIgnoredLabel));
  }
  return places;
}

TEST(MaskedTokens, CountWhereTheMaskSays) {
  EXPECT_EQ(counted(LabelMask::kSome).size(), 128U);
  EXPECT_EQ(counted(LabelMask::kOne), (Places{{4, 8}}));
  EXPECT_EQ(counted(LabelMask::kSparse), (Places{{0, 0}, {0, 1}, {2, 0}, {2, 1}}));
  const Places cuts = counted(LabelMask::kCuts);
  EXPECT_EQ(cuts.size(), 64U);
  EXPECT_TRUE(std::ranges::all_of(cuts, [](const auto& at) { return at.second % 2 == 1; }));
  const Places most = counted(LabelMask::kButLast);
  EXPECT_EQ(most.size(), 120U);
  EXPECT_FALSE(most.contains({0, 15}));
}

}  // namespace
}  // namespace lockstep::data
