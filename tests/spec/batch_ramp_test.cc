#include "lockstep/spec/batch_ramp.h"

#include <gtest/gtest.h>

namespace lockstep::spec {
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

// The definition: k equal increments spread over the samples, floor(consumed k / samples) of them
// so far, as Megatron-LM's --rampup-batch-size.
std::int64_t size_at(const BatchRamp& ramp, std::int64_t whole, std::int64_t consumed) {
  if (ramp.is_none() || consumed >= ramp.samples) return whole;
  const std::int64_t all = (whole - ramp.start) / ramp.increment;
  return ramp.start + consumed * all / ramp.samples * ramp.increment;
}

// One step after the other by the definition, which the closed form must meet.
TEST(BatchRamp, StepsFollowFromConsumedSamples) {
  for (const auto& [ramp, whole] : kCases) {
    std::int64_t consumed = 0;
    for (std::int64_t step = 0; step < 400; ++step) {
      const StepBatch batch = batch_of_step(ramp, whole, step);
      EXPECT_EQ(batch, (StepBatch{consumed, size_at(ramp, whole, consumed)}))
          << ramp.start << " " << step;
      consumed += batch.sequences;
    }
  }
}

TEST(BatchRamp, SizesAreAllThatOccur) {
  EXPECT_EQ(BatchRamp().sizes(32), std::vector<std::int64_t>{32});
  EXPECT_EQ((BatchRamp{8, 12, 100}).sizes(32), (std::vector<std::int64_t>{8, 20, 32}));
}

}  // namespace
}  // namespace lockstep::spec
