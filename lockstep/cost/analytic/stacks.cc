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

// Its experts multiply by the router's weights inside (core/transformer/moe/experts.py of
// d98e8a64dd, permuted_probs).
Stack megatron_stack(int zero) {
  Stack stack;
  set_habits(kFittedHabits, StackClass::kTuned, stack);
  stack.weighted_products = true;
  stack.weight_grad_scratch = zero < 3;
  stack.recompute_count = RecomputeCount::kSameNumber;
  return stack;
}

// Stages 1 and 2 keep the gathered bf16 weights beside the f32 shard: the default's bytes. Buffers
// of pipelines: torch 2.13, distributed/pipelining/stage.py (args_recv_info, grad_recv_info).
Stack torchtitan_stack(int zero) {
  Stack stack;
  set_habits(kFittedHabits, StackClass::kTuned, stack);
  stack.host_factor = 0.3;
  if (zero >= 3) set_fsdp_states(stack);
  stack.torch_attention = true;
  stack.expandable_segments = true;  // run_train.sh asks for them
  stack.torch_pipeline = true;
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

// Casts are those of torchao 0.18 without a compiler (float8/float8_utils.py, tensor_to_amax and
// to_fp8_saturated; float8_training_tensor.py): of 16 bits |x| (2 + 2) and its maximum (2), a cast
// to f32 (2 + 4), scale and clamp (8 each), 8 bits (4 + 1).
Stack fsdp2_stack(int zero) {
  Stack stack;
  set_habits(kFittedHabits, StackClass::kSharded, stack);
  stack.fused_norms = stack.fused_passes = false;
  stack.torch_attention = true;
  stack.loss = Loss::kTorch;
  stack.overlap_tensor = stack.overlap_regather = false;
  stack.cast_bytes = 33;
  if (zero >= 2) set_fsdp_states(stack);
  stack.even_stages = true;
  stack.recompute_count = RecomputeCount::kAllOrNone;
  return stack;
}

// transformers 5.23 (loss/loss_utils.py, models/llama/modeling_llama.py) under accelerate 1.15,
// whose DistributedDataParallel keeps buckets beside f32 gradients. Products keep the 16-bit
// weights for their gradients; casting them reads 4 bytes and writes 2, and gradients come back the
// same way. A Llama layer forward is 50 operators that are no views, 40 without autocast, counted
// by TorchDispatchMode in transformers 5.15; our launch time is taken to be of 40.
Stack transformers_stack(int) {
  Stack stack = fsdp2_stack(0);
  stack.weight_bytes = 6, stack.grad_bytes = stack.reduce_bytes = 4, stack.optimizer_bytes = 8;
  stack.ddp_buckets = 4;
  stack.autocast_bytes = 6;
  stack.host_factor = 1.25;
  return stack;
}

// axolotl 0.19 (utils/config/__init__.py), TRL 1.16 (SFTTrainer) and torchtune 0.6
// (recipes/configs/llama3_1/8B_full.yaml) load weights in bf16, and AdamW's moments have the type
// of their weights. LLaMA-Factory 0.9 turns them to f32 (model/adapter.py): transformers_stack().
Stack finetune_stack(int zero) {
  Stack stack = fsdp2_stack(zero);
  stack.weight_bytes = stack.grad_bytes = stack.reduce_bytes = 2, stack.optimizer_bytes = 4;
  if (zero < 2) stack.ddp_buckets = 2;
  return stack;
}

// nanotron 0.4: f32 gradients (optim/gradient_accumulator.py) of models in PyTorch's
// DistributedDataParallel with bf16 buckets (trainer.py), scattered after the last backward pass
// with ZeRO-1 (optim/zero.py); Triton's norm and flash-attn's rotation, an eager gate; a loss of
// f32 logits (models/llama.py, parallel/tensor_parallel/functional.py). That it keeps inputs of
// linears whole is inferred from its memory figures.
Stack nanotron_stack(int zero) {
  Stack stack;
  set_habits(kFittedHabits, StackClass::kOther, stack);
  stack.fused_passes = false;
  stack.torch_attention = true;
  stack.loss = Loss::kInPlace;
  stack.keeps_gathered = true;
  stack.ddp_buckets = 2;
  stack.overlap_data = zero == 0;
  stack.overlap_tensor = stack.overlap_pipe = false;
  stack.recompute_count = RecomputeCount::kAllOrNone;
  return stack;
}

// llm.c f1e2ace (train_gpt2.cu): bf16 gradients added up in their products, f32 master weights and
// moments, a loss in place of the logits, blocks reduced as they end, launches from C.
Stack llmc_stack(int) {
  Stack stack;
  set_habits(kFittedHabits, StackClass::kTuned, stack);
  stack.host_factor = 0.3;
  stack.grad_bytes = stack.reduce_bytes = 2;
  stack.recompute_count = RecomputeCount::kAllOrNone;
  return stack;
}

// arXiv 2412.19437: exchanges hidden by DualPipe (section 3.2.1), tokens and gradients dispatched
// in 8 bits and combined in 16, inputs of products kept in 8, moments in bf16 beside f32 weights
// and gradients (section 3.3.3). What attention's output product reads is kept in 12 bits there
// (E5M6), in 8 here. That routers' weights multiply inside experts is inferred: combining adds up
// alone (DeepEP).
Stack deepseek_stack(int) {
  Stack stack;
  set_habits(kFittedHabits, StackClass::kTuned, stack);
  stack.overlap_expert = stack.narrow_dispatch = stack.narrow_kept = true;
  stack.weighted_products = true;
  stack.optimizer_bytes = 8;
  return stack;
}

}  // namespace lockstep::cost
