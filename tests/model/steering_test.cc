#include "lockstep/model/steering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>

#include "lockstep/model/catalog.h"

namespace lockstep::model {
namespace {

// Two blocks of four experts behind a dense one.
Model mixture() {
  ModelConfig config = find("mixtral-tiny")->config;
  config.layers = 3;
  config.ffn = 32;
  config.moe.dense_layers = 1;
  config.moe.router_bias = true;
  return *describe(config);
}

constexpr std::size_t kExperts = 4;

std::span<const float> block_of(const std::vector<float>& biases, std::size_t block) {
  return std::span(biases).subspan(block * kExperts, kExperts);
}

TEST(Steering, OutweighsEveryScoreInTheOrderOfItsRouting) {
  constexpr float kAnyScore = 1;
  for (const std::size_t block : {0U, 1U}) {
    const auto of = [&](Routing routing) {
      const std::vector<float> all = steering_biases(mixture(), routing);
      EXPECT_EQ(all.size(), 2 * kExperts);
      const auto own = block_of(all, block);
      return std::vector<float>(own.begin(), own.end());
    };
    EXPECT_EQ(of(Routing::kScores), std::vector<float>(kExperts));
    for (const float bias : of(Routing::kTies)) EXPECT_EQ(static_cast<double>(bias) + 1.0, bias);
    const std::vector<float> last = of(Routing::kLast), half = of(Routing::kHalf);
    for (std::size_t e = 1; e < kExperts; ++e) EXPECT_GT(last[e], last[e - 1] + kAnyScore);
    EXPECT_EQ(half[0], half[1]);
    EXPECT_EQ(half[2], half[3]);
    EXPECT_GT(half[1], half[2] + kAnyScore);
  }
}

TEST(Steering, IsRandomInEveryBlockAndTheSameAgain) {
  const std::vector<float> biases = steering_biases(mixture(), Routing::kRandom);
  EXPECT_EQ(biases, steering_biases(mixture(), Routing::kRandom));
  EXPECT_EQ(std::set(biases.begin(), biases.end()).size(), biases.size());
  EXPECT_FALSE(std::ranges::equal(block_of(biases, 0), block_of(biases, 1)));
}

}  // namespace
}  // namespace lockstep::model
