#include "lockstep/generate/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

namespace lockstep::generate {
namespace {

const std::vector<float> kLogits = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f, 0.0f};

std::map<std::int64_t, int> drawn(const Sampling& how, int draws) {
  const Sampler sampler(how, "test");
  std::map<std::int64_t, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[sampler.draw(kLogits, i)];
  return counts;
}

TEST(Sampler, TakesTheFirstOfTheLikeliestWithoutATemperature) {
  EXPECT_EQ(drawn({.temperature = 0.0}, 5), (std::map<std::int64_t, int>{{1, 5}}));
}

TEST(Sampler, DrawsByTheSoftmaxOfLogitsOverTemperature) {
  constexpr int kDraws = 40000;
  const double temperature = 0.7;
  const auto counts = drawn({.temperature = temperature, .seed = 3}, kDraws);
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(logit / temperature);
  for (std::size_t id = 0; id < kLogits.size(); ++id) {
    const double p = std::exp(kLogits[id] / temperature) / sum;
    const auto found = counts.find(static_cast<std::int64_t>(id));
    // Five standard deviations of a binomial distribution.
    EXPECT_NEAR(found == counts.end() ? 0 : found->second, kDraws * p,
                5 * std::sqrt(kDraws * p * (1 - p)))
        << id;
  }
}

std::set<std::int64_t> ids(const Sampling& how) {
  std::set<std::int64_t> all;
  for (const auto& [id, count] : drawn(how, 2000)) all.insert(id);
  return all;
}

TEST(Sampler, KeepsTheLikeliestAndOfEqualOnesTheLowerIds) {
  EXPECT_EQ(ids({.top_k = 1}), (std::set<std::int64_t>{1}));
  EXPECT_EQ(ids({.top_k = 3}), (std::set<std::int64_t>{1, 3, 4}));
  EXPECT_EQ(ids({.top_k = 6}), (std::set<std::int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Sampler, KeepsTheFewestThatHaveTheShare) {
  // Shares: 0.35 each of ids 1 and 3, 0.13 of 4, 0.08 of 0, 0.05 of 5, 0.02 of 2.
  EXPECT_EQ(ids({.top_p = 0.1}), (std::set<std::int64_t>{1}));
  EXPECT_EQ(ids({.top_p = 0.6}), (std::set<std::int64_t>{1, 3}));
  EXPECT_EQ(ids({.top_p = 0.75}), (std::set<std::int64_t>{1, 3, 4}));
  EXPECT_EQ(ids({.top_k = 3, .top_p = 0.75}), (std::set<std::int64_t>{1, 3}))
      << "the share is one of what top_k leaves";
}

TEST(Sampler, IsAFunctionOfSeedStreamAndNumber) {
  const Sampler one({.seed = 1}, "a"), other_seed({.seed = 2}, "a"), other_stream({.seed = 1}, "b");
  const auto texts = [](const Sampler& sampler) {
    std::vector<std::int64_t> made;
    for (int i = 0; i < 40; ++i) made.push_back(sampler.draw(kLogits, i));
    return made;
  };
  EXPECT_EQ(texts(one), texts(Sampler({.seed = 1}, "a")));
  EXPECT_NE(texts(one), texts(other_seed));
  EXPECT_NE(texts(one), texts(other_stream));
}

}  // namespace
}  // namespace lockstep::generate
