#include "lockstep/planner/goodput.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::planner {
namespace {

// Shares with Llama 3's rate of interruptions, worked out apart with Young's interval, which is a
// little less good.
TEST(Goodput, FallsWithDevicesAndRecovery) {
  const auto percent = [](double devices, double save, double restart) {
    return std::round(100 * goodput(devices, {.save_s = save, .restart_s = restart}).share);
  };
  EXPECT_NEAR(percent(16384, 60, 600), 85, 1);
  EXPECT_NEAR(percent(100000, 60, 600), 58, 1);
  EXPECT_NEAR(percent(1000000, 60, 600), 8, 1);
  EXPECT_NEAR(percent(16384, 5, 120), 96, 1);
  EXPECT_NEAR(percent(100000, 5, 120), 87, 1);
  EXPECT_NEAR(percent(1000000, 5, 120), 46, 1);
  EXPECT_NEAR(percent(16384, 1, 30), 98, 1);
  EXPECT_NEAR(percent(100000, 1, 30), 95, 1);
  EXPECT_NEAR(percent(1000000, 1, 30), 77, 1);
}

// changlan.org/posts/optimal-checkpointing: saves of 10 s, 6,000 s between failures, restarts of
// 600 s, steps of 15 s: every 24 steps, by a formula that counts restarts otherwise.
TEST(Goodput, SavesAsOftenAsThePublishedExample) {
  const Reliability reliability{.device_hours = 6000.0 / 3600, .save_s = 10, .restart_s = 600};
  EXPECT_NEAR(std::round(goodput(1, reliability).interval_s / 15), 24, 1);
}

// 419 interruptions in 54 days: one in 3.09 hours.
TEST(Goodput, IsFailuresOfLlama3) {
  EXPECT_NEAR(goodput(16384, {}).mtbf_s / 3600, 54.0 * 24 / 419, 1e-9);
}

TEST(Goodput, IsHighestAtItsInterval) {
  const Reliability reliability;
  const Goodput best = goodput(16384, reliability);
  const auto share = [&](double interval) {
    return interval / ((best.mtbf_s + reliability.restart_s) *
                       std::expm1((interval + reliability.save_s) / best.mtbf_s));
  };
  EXPECT_DOUBLE_EQ(share(best.interval_s), best.share);
  EXPECT_LT(share(best.interval_s * 1.01), best.share);
  EXPECT_LT(share(best.interval_s * 0.99), best.share);
}

}  // namespace
}  // namespace lockstep::planner
