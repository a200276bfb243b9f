#include "lockstep/cost/analytic/stacks.h"

#include <gtest/gtest.h>

namespace lockstep::cost {
namespace {

constexpr Stack (*kAll[])(int) = {megatron_stack, torchtitan_stack, deepspeed_stack};

// Searches price layers once for all ZeRO stages.
TEST(Stacks, KernelsDoNotDependOnTheStage) {
  for (const auto stack : kAll)
    for (int zero = 1; zero <= 3; ++zero) {
      Stack a = stack(0);
      const Stack b = stack(zero);
      // What the stage may decide: bytes and when data ranks meet.
      a.weight_bytes = b.weight_bytes, a.optimizer_bytes = b.optimizer_bytes;
      a.bucket_bytes = b.bucket_bytes, a.reduce_each_microbatch = b.reduce_each_microbatch;
      a.whole_reduce = b.whole_reduce, a.overlap_data = b.overlap_data;
      a.weight_grad_scratch = b.weight_grad_scratch, a.reduce_bytes = b.reduce_bytes;
      EXPECT_EQ(a, b) << zero;
    }
}

// Adam in mixed precision: weights, gradients, an f32 copy and two moments.
TEST(Stacks, KeepWhatAdamKeeps) {
  for (const auto stack : kAll)
    for (int zero = 0; zero <= 3; ++zero) {
      const Stack s = stack(zero);
      const double bytes = s.weight_bytes + s.grad_bytes + s.optimizer_bytes;
      EXPECT_GE(bytes, 16) << zero;
      EXPECT_LE(bytes, 20) << zero;
    }
}

}  // namespace
}  // namespace lockstep::cost
