#include "lockstep/spec/step_sizes.h"

#include <gtest/gtest.h>

namespace lockstep::spec {
namespace {

Spec spec_with(const char* layout) {
  Spec spec;
  spec.layout = parse_layout(layout).value();
  spec.batch = {.seq = 32, .global_batch = 8, .microbatch = 2};
  spec.train.dtype = DType::kF32;
  return spec;
}

TEST(StepSizes, FollowTheLayout) {
  const cost::StepSizes sizes = step_sizes(spec_with("tp2 dp4x2 zero3 recompute=cheap"));
  EXPECT_EQ(sizes.unit.batch, 2);
  EXPECT_EQ(sizes.unit.seq, 32);
  EXPECT_EQ(sizes.unit.dtype, DType::kF32);
  EXPECT_EQ(sizes.unit.tp, 2);
  EXPECT_TRUE(sizes.unit.sequence_parallel && sizes.unit.drop.product);
  EXPECT_EQ(sizes.shards, 2);
  EXPECT_FALSE(sizes.looks_at_noise);
}

TEST(StepSizes, SharesRowsAmongSeveralTensorRanksOnly) {
  EXPECT_FALSE(step_sizes(spec_with("dp4 zero1")).unit.sequence_parallel);
  EXPECT_FALSE(step_sizes(spec_with("tp2 dp1 nosp")).unit.sequence_parallel);
  EXPECT_EQ(step_sizes(spec_with("dp4 zero1")).shards, 4);
  Spec tuned = spec_with("dp4 zero1");
  tuned.train.head_chunk = 5;
  tuned.train.threads = 3;
  EXPECT_EQ(step_sizes(tuned).unit.head_chunk, 5);
  EXPECT_EQ(step_sizes(tuned).unit.threads, 3);
}

}  // namespace
}  // namespace lockstep::spec
