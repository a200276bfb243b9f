#include "lockstep/cost/analytic/stacks.h"

namespace lockstep::cost {

const StackHabits kFittedHabits = {0, 0.06, 0, 0.016, 0.45};

void set_habits(const StackHabits& habits, StackClass kind, Stack& stack) {
  stack.gaps = kind == StackClass::kSharded ? habits.gaps_sharded
               : kind == StackClass::kOther ? habits.gaps_other
                                            : 0;
  stack.jitter = kind == StackClass::kTuned ? habits.jitter_tuned : habits.jitter_other;
  stack.network_share = kind == StackClass::kOther ? habits.network_other : 1;
}

void set_fsdp_states(Stack& stack) {
  stack.weight_bytes = 4;
  stack.grad_bytes = stack.reduce_bytes = 4;
  stack.optimizer_bytes = 8;
  stack.reduce_each_microbatch = true;
}

Stack megatron_stack(int zero) {
  Stack stack;
  set_habits(kFittedHabits, StackClass::kTuned, stack);
  stack.weight_grad_scratch = zero < 3;
  stack.recompute_count = RecomputeCount::kSameNumber;
  return stack;
}

// Stages 1 and 2 keep the gathered bf16 weights beside the f32 shard: the default's bytes.
Stack torchtitan_stack(int zero) {
  Stack stack;
  set_habits(kFittedHabits, StackClass::kTuned, stack);
  stack.host_factor = 0.3;
  if (zero >= 3) set_fsdp_states(stack);
  stack.expandable_segments = true;  // run_train.sh asks for them
  stack.recompute_count = RecomputeCount::kAllOrNone;
  return stack;
}

Stack deepspeed_stack(int zero) {
  Stack stack;
  set_habits(kFittedHabits, StackClass::kOther, stack);
  stack.fused_norms = stack.fused_passes = false;
  stack.loss = Loss::kTorch;
  stack.overlap_data = zero >= 2;
  stack.overlap_tensor = stack.overlap_regather = stack.overlap_pipe = false;
  stack.grad_bytes = stack.reduce_bytes = 2;
  if (zero >= 1) stack.optimizer_bytes = kDeepSpeedOptimizer;
  stack.whole_reduce = zero == 1;
  if (zero >= 1) stack.bucket_bytes = kDeepSpeedBuckets;
  stack.even_stages = true;
  stack.recompute_count = RecomputeCount::kAllOrNone;
  return stack;
}

}  // namespace lockstep::cost
