#include "lockstep/spec/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::spec {
namespace {

TEST(LearningRate, RisesToThePeak) {
  const LearningRate lr = {.peak = 8, .warmup = 4};
  for (std::int64_t step = 0; step < 4; ++step)
    EXPECT_EQ(lr.at(step, 10), 2.0 * static_cast<double>(step + 1));
  EXPECT_EQ(lr.at(4, 10), 8);
  EXPECT_EQ(lr.at(9, 10), 8);
  EXPECT_EQ((LearningRate{.peak = 8}).at(0, 10), 8);
}

TEST(LearningRate, FallsStraight) {
  const LearningRate lr = {.peak = 10, .end = 2, .warmup = 2, .decay = Decay::kLinear};
  for (std::int64_t step = 2; step <= 10; ++step)
    EXPECT_EQ(lr.at(step, 10), 10.0 - static_cast<double>(step - 2));
  EXPECT_EQ(lr.at(20, 10), 2) << "after the run";
}

// cos(pi/3) and its kin are halves, so every sixth of the way is known without a cosine.
TEST(LearningRate, FallsAlongHalfAWave) {
  const LearningRate lr = {.peak = 9, .end = 1, .decay = Decay::kCosine};
  const double root = std::sqrt(3.0) / 2;
  const double left[] = {1, (1 + root) / 2, 0.75, 0.5, 0.25, (1 - root) / 2, 0};
  for (std::int64_t sixth = 0; sixth <= 6; ++sixth)
    EXPECT_NEAR(lr.at(100 * sixth, 600), 1 + 8 * left[sixth], 1e-14) << sixth;
}

TEST(LearningRate, StaysAndThenFalls) {
  const LearningRate lr = {.peak = 4, .warmup = 3, .decay = Decay::kWsd, .decay_steps = 4};
  for (std::int64_t step = 2; step <= 16; ++step) EXPECT_EQ(lr.at(step, 20), 4) << step;
  EXPECT_EQ(lr.at(17, 20), 3);
  EXPECT_EQ(lr.at(18, 20), 2);
  EXPECT_EQ(lr.at(19, 20), 1);
  EXPECT_EQ(lr.at(20, 20), 0);
}

TEST(LearningRate, NamesAreTheirOwnInverse) {
  ASSERT_EQ(decay_names().size(), 4U);
  for (const std::string& name : decay_names()) EXPECT_EQ(to_text(*parse_decay(name)), name);
  EXPECT_FALSE(parse_decay("cosin").has_value());
}

}  // namespace
}  // namespace lockstep::spec
