#include "lockstep/plan/batch_ramp.h"

#include <gtest/gtest.h>

namespace lockstep::plan {
namespace {

struct Case {
  BatchRamp ramp;
  std::int64_t whole;
};
constexpr Case kCases[] = {
    {{}, 32},
    {{8, 8, 1000}, 32},
    {{8, 8, 1}, 32},
    {{4, 4, 100}, 64},
    {{16, 32, 7}, 112},
    {{2, 3, 500}, 32},
    {{1, 1, 12'345}, 100},
    {{8, 24, 96}, 32},
    {{8, 8, 1'000'000'000'000'000}, 1'000'000},
};

// One step after the other by the definition, which the closed form must meet.
TEST(BatchRamp, StepsFollowFromConsumedSamples) {
  for (const auto& [ramp, whole] : kCases) {
    std::int64_t consumed = 0;
    for (std::int64_t step = 0; step < 400; ++step) {
      const StepBatch batch = batch_of_step(ramp, whole, step);
      EXPECT_EQ(batch, (StepBatch{consumed, ramp.at(consumed, whole)}))
          << ramp.start << " " << step;
      consumed += batch.sequences;
    }
  }
}

// start + floor(consumed k / samples) increments, k of them, as Megatron-LM's --rampup-batch-size.
TEST(BatchRamp, GrowsInEqualIncrementsOverTheSamples) {
  for (const auto& [ramp, whole] : kCases) {
    if (ramp.is_none() || ramp.samples > 100'000) continue;
    const std::int64_t all = (whole - ramp.start) / ramp.increment;
    for (std::int64_t consumed = 0; consumed < ramp.samples + 20; ++consumed) {
      const std::int64_t n = consumed * all / ramp.samples;
      EXPECT_EQ(ramp.at(consumed, whole), n >= all ? whole : ramp.start + n * ramp.increment);
    }
  }
  EXPECT_EQ(BatchRamp().at(0, 32), 32);
}

TEST(BatchRamp, SizesAreAllThatOccur) {
  EXPECT_EQ(BatchRamp().sizes(32), std::vector<std::int64_t>{32});
  EXPECT_EQ((BatchRamp{8, 12, 100}).sizes(32), (std::vector<std::int64_t>{8, 20, 32}));
}

}  // namespace
}  // namespace lockstep::plan
