#include "lockstep/cost/analytic/stacks.h"

#include <gtest/gtest.h>

#include <span>

namespace lockstep::cost {
namespace {

constexpr Stack (*kAll[])(int) = {megatron_stack, torchtitan_stack, deepspeed_stack,
                                  fsdp2_stack,    llmc_stack,       nanotron_stack,
                                  finetune_stack, deepseek_stack,   transformers_stack};

// Searches price layers once for all ZeRO stages.
TEST(Stacks, KernelsDoNotDependOnTheStage) {
  for (const auto stack : kAll)
    for (int zero = 1; zero <= 3; ++zero) {
      Stack a = stack(0);
      const Stack b = stack(zero);
      // What the stage may decide: bytes and when data ranks meet.
      a.weight_bytes = b.weight_bytes, a.optimizer_bytes = b.optimizer_bytes;
      a.bucket_bytes = b.bucket_bytes, a.reduce_each_microbatch = b.reduce_each_microbatch;
      a.grad_bytes = b.grad_bytes, a.ddp_buckets = b.ddp_buckets;
      a.whole_reduce = b.whole_reduce, a.overlap_data = b.overlap_data;
      a.weight_grad_scratch = b.weight_grad_scratch, a.reduce_bytes = b.reduce_bytes;
      EXPECT_EQ(a, b) << zero;
    }
}

// Adam in mixed precision: weights, gradients, an f32 copy and two moments.
TEST(Stacks, KeepWhatAdamKeeps) {
  for (const auto stack : std::span(kAll).first(6))
    for (int zero = 0; zero <= 3; ++zero) {
      const Stack s = stack(zero);
      const double bytes = s.weight_bytes + s.grad_bytes + s.optimizer_bytes;
      EXPECT_GE(bytes, 16) << zero;
      EXPECT_LE(bytes, 20) << zero;
    }
}

// Weights, gradients, moments and buckets of 8 billion parameters: with f32 weights on one device
// they need more than it has, in bf16 they do not.
TEST(Stacks, WhatATrainerKeepsDecidesWhatFits) {
  const auto states = [](const Stack& s) {
    return s.weight_bytes + s.grad_bytes + s.optimizer_bytes + s.ddp_buckets;
  };
  EXPECT_EQ(states(transformers_stack(0)), 4 + 2 + 4 + 8 + 4);
  EXPECT_EQ(states(finetune_stack(0)), 2 + 2 + 4 + 2);
  EXPECT_EQ(states(deepseek_stack(1)), 2 + 4 + 4 + 2 * 2);
}

}  // namespace
}  // namespace lockstep::cost
