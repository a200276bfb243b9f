#include "lockstep/cost/analytic/stacks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "lockstep/cost/analytic/layer_time.h"
#include "tests/cost/analytic/requests.h"

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

// Exchanges hide under what computes beside them, at the price of the processors they run on.
TEST(Stacks, ExchangesHideUnderOtherPasses) {
  Rig rig("deepseek-v3", "h800:2048");
  PriceRequest& r = rig.request;
  r.dp = r.ep = 64;
  r.global_batch = 64;
  const LayerTime alone = layer_times(r).made.routed;
  r.stack.overlap_expert = true;
  const LayerTime beside = layer_times(r).made.routed;
  const double passes = alone.compute.forward + alone.compute.backward;
  EXPECT_DOUBLE_EQ(beside.expert, std::max(0.0, alone.expert - passes) +
                                      20.0 / 132 * std::min(alone.expert, passes));
  EXPECT_GT(alone.expert, 0);
  r.stack.overlap_expert = false;
  r.stack.narrow_dispatch = true;
  EXPECT_EQ(layer_times(r).made.routed.expert, alone.expert);  // products of 16 bits
  r.precision = Precision::kFp8;
  EXPECT_DOUBLE_EQ(layer_times(r).made.routed.expert, 0.75 * alone.expert);
}

// Bytes of casts cross the bus once a pass for each weight, and once for each operand.
TEST(Stacks, CastsAreStreamed) {
  Rig rig("llama3-8b", "h100:8");
  PriceRequest& r = rig.request;
  const double bus = r.cluster->device.memory_bytes_per_s.value * r.rate(cluster::Term::kStream);
  const auto layer = [&] { return layer_times(r).made.plain.compute; };
  const ComputeTime plain = layer();
  r.stack.autocast_bytes = 6;
  const PartParams params = plain_layer_params(*r.shape);
  EXPECT_NEAR(layer().forward - plain.forward, 6 * params.total() / bus, 1e-12);
  EXPECT_NEAR(layer().backward - plain.backward, 6 * params.total() / bus, 1e-12);
  r.stack.autocast_bytes = 0;
  r.precision = Precision::kFp8;
  const ComputeTime narrow = layer();
  r.stack.cast_bytes = 33;
  const double h = 4096, f = 14336, t = r.tokens();
  const double inputs = t * (h + h + h + f), outputs = t * (6144 + h + 2 * f + h);
  const double weights = h * 6144 + h * h + 3 * h * f;
  EXPECT_NEAR(layer().forward - narrow.forward, (33 * (inputs + weights) - 2 * inputs) / bus,
              1e-12);
  EXPECT_NEAR(layer().backward - narrow.backward,
              (33 * (2 * outputs + inputs + weights) - 4 * outputs) / bus, 1e-12);
}

}  // namespace
}  // namespace lockstep::cost
