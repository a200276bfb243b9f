// Software that runs steps, as rows of traits: what it keeps, fuses and overlaps, and how much time
// it leaves idle. One home for published runs (backtest/run_stack.h says which row a run is of) and
// for plans (planner/framework.h).
#pragma once

#include <cstdint>

#include "lockstep/cost/analytic/price.h"

namespace lockstep::cost {

// Software that leaves its devices idle between kernels to a different degree.
enum class StackClass : std::uint8_t {
  kTuned,    // the vendor's stack (Megatron's kernels, also under DeepSpeed), or a compiled program
  kSharded,  // PyTorch FSDP, eager
  kOther,    // home-made trainers, and pipelines that DeepSpeed's engine drives
};

// Stack::gaps, Stack::jitter and Stack::network_share of the classes. Fitted on calibration rows
// together with the rates of devices: the tuned stack's gaps and network are the reference, and
// ranks of sharded data meet in collectives that are priced apart.
struct StackHabits {
  double gaps_sharded, gaps_other;
  double jitter_tuned, jitter_other;
  double network_other;
};
extern const StackHabits kFittedHabits;
void set_habits(const StackHabits& habits, StackClass kind, Stack& stack);

// FSDP shards an f32 copy of the weights, and reduces after every backward pass.
void set_fsdp_states(Stack& stack);
// DeepSpeed's sums of gradients in sixteen bits: two buckets for reductions and one for gathers, of
// 5e8 elements each by default, and a shard of the gradients in f32 for the optimizer.
inline constexpr double kDeepSpeedBuckets = 3 * 5e8 * 2, kDeepSpeedOptimizer = 16;

// Today's, with a ZeRO stage. Kernels do not depend on the stage.
Stack megatron_stack(int zero);      // Megatron-Core with TransformerEngine and a fused loss
Stack torchtitan_stack(int zero);    // compiled, with FSDP2
Stack deepspeed_stack(int zero);     // an eager model of the user's under DeepSpeed's engine
Stack fsdp2_stack(int zero);         // eager PyTorch
Stack transformers_stack(int zero);  // Hugging Face's Trainer without sharding, f32 under autocast
Stack finetune_stack(int zero);      // the same models with weights and moments in bf16
Stack nanotron_stack(int zero);
Stack llmc_stack(int zero);      // llm.c: C and CUDA, one kernel for what others launch several for
Stack deepseek_stack(int zero);  // DeepSeek-V3's trainer, as its report describes it

}  // namespace lockstep::cost
