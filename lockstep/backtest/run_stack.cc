#include "lockstep/backtest/run_stack.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <optional>
#include <string>

namespace lockstep::backtest {
namespace {

using cost::Loss;

double year_of(const PublishedRun& run) { return run.number("year").value_or(2024); }

// Any of the words, in any case, where a row names its software.
bool names(const PublishedRun& run, std::initializer_list<std::string_view> words) {
  for (const char* column :
       {"source", "notes", "source_locator", "schedule", "interconnect_inter"}) {
    std::string text = run.text(column);
    std::ranges::transform(text, text.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (const std::string_view word : words)
      if (text.find(word) != std::string::npos) return true;
  }
  return false;
}

// By PyTorch's compiler, which leaves products, attention and collectives as they are.
bool is_torch_compiled(const PublishedRun& run) {
  return names(run, {"torch.compile", "compile+", "+compile"});
}

bool is_compiled(const PublishedRun& run) {
  return names(run, {"jax", "xla", "pax ", "maxtext", "c/cuda"}) || is_torch_compiled(run);
}

// Megatron-Turing NLG is named after its two frameworks (arXiv 2201.11990).
bool is_deepspeed(const PublishedRun& run) { return names(run, {"deepspeed", "mt-nlg"}); }

// DeepSpeed's own pipeline engine interprets its instructions in Python between kernels.
// Megatron-Turing NLG's pipelines are DeepSpeed's (section 2.3 of its paper).
bool has_deepspeed_pipeline(const PublishedRun& run) {
  return says(run, "schedule", "DeepSpeed") || says(run, "source", "mt-nlg");
}

// Megatron's kernels, also under the vendor's own FSDP. Selene is NVIDIA's machine.
bool is_vendors(const PublishedRun& run) {
  return names(run, {"megatron", "nvidia", "nemo", "mlperf", "selene"});
}

// Its sweeps compare kernels of attention.
bool is_aleph(const PublishedRun& run) { return says(run, "notes", "kernel: "); }

// Kernels and collectives of PyTorch itself: neither the vendor's nor a trainer's own.
bool is_plain_torch(const PublishedRun& run) {
  if (is_torch_compiled(run) || is_torchtitan(run)) return true;
  return run.text("schedule").starts_with("FSDP") && !is_vendors(run) && !is_deepspeed(run) &&
         !is_compiled(run);
}

bool has_async_tensor(const PublishedRun& run) {
  return says(run, "notes", "async TP") || says(run, "notes", "AsyncTP");
}

// Of PyTorch, one kernel for each operation: no compiler and no kernels of the trainer's own.
bool is_eager(const PublishedRun& run, int zero) {
  return stack_class_of(run, zero) != StackClass::kTuned && !names(run, {"fused kernels"});
}

// Megatron-DeepSpeed forked Megatron-LM in 2021 and has what that had. MLPerf's submissions run
// what is released the year after.
bool is_recent(const PublishedRun& run) {
  return (year_of(run) >= 2024 || names(run, {"mlperf"})) && !is_deepspeed(run);
}

// Compilers fuse the loss, PyTorch's since torchtitan compiles it too (2025); so do NeMo's recipes
// (cross_entropy_loss_fusion). Megatron-LM does when asked to.
Loss loss_of(const PublishedRun& run, int zero) {
  if (is_torch_compiled(run)) return year_of(run) >= 2025 ? Loss::kFused : Loss::kTorch;
  if (is_compiled(run)) return Loss::kFused;
  if ((zero >= 3 && !is_vendors(run)) || is_aleph(run)) return Loss::kTorch;
  const std::string& source = run.text("source");
  const bool by_default = source.starts_with("megatron-lm") || source.starts_with("megatron-core");
  return is_recent(run) && !by_default ? Loss::kFused : Loss::kVocabulary;
}

void set_kernels(const PublishedRun& run, int zero, cost::Stack& stack) {
  const double year = year_of(run);
  stack.flash =
      run.text("flash_attention").empty() ? year >= 2023 : run.number("flash_attention") != 0.0;
  const bool is_given = says(run, "notes", "flash_attention2");
  stack.attention_share = is_given || is_recent(run) ? 1 : 0.4;
  stack.torch_attention = !is_given && is_recent(run) && is_plain_torch(run);
  stack.whole_logits = is_aleph(run);
  stack.fused_softmax = !says(run, "notes", "kernel: torch");
  // GPT-3's successors train without dropout (PaLM, arXiv 2204.02311, section 5).
  stack.dropout = run.text("arch") == "gpt" && !stack.flash && year < 2024;
  // LayerNorm is one kernel in PyTorch, RMSNorm was many; a rotation and a gate still are.
  const bool is_llama = !run.text("arch").starts_with("gpt");
  const bool is_slow = is_eager(run, zero) && is_llama;
  stack.fused_norms = is_aleph(run) ? says(run, "notes", "RMS kernel") : !(is_slow && zero >= 3);
  stack.fused_passes = !is_slow;
  stack.loss = loss_of(run, zero);
  // Megatron's gradient_accumulation_fusion came with version 3 (2022); FSDP reduces what it has
  // not added up.
  const bool is_vendor = stack_class_of(run, zero) == StackClass::kTuned && !is_deepspeed(run);
  stack.fused_sums = zero >= 3 || (is_vendor && year >= 2022);
  stack.weight_grad_scratch = is_recent(run) && zero < 3;
  if (is_compiled(run) || says(run, "notes", "CUDA graph on")) stack.host_factor = 0.3;
}

void set_overlap(const PublishedRun& run, int zero, cost::Stack& stack) {
  const double year = year_of(run);
  // Megatron-LM of 2020 wrapped models in PyTorch's DistributedDataParallel, which overlaps; the
  // one it had for pipelines from 2021 did not until 2023.
  stack.overlap_data = zero >= 3 || is_recent(run) || year <= 2020;
  // Megatron and NeMo pipeline products with their collectives; PyTorch does when asked for
  // asynchronous tensor parallelism.
  stack.overlap_tensor = is_plain_torch(run) ? has_async_tensor(run)
                         : year >= 2024      ? is_recent(run)
                                             : says(run, "notes", "TP comm overlap");
  stack.overlap_pipe = year >= 2023 && !is_deepspeed(run);
  if (says(run, "notes", "no compute/comm overlap"))
    stack.overlap_data = stack.overlap_tensor = stack.overlap_regather = stack.overlap_pipe = false;
  if (says(run, "notes", "no gradient bucketing overlap")) stack.overlap_data = false;
}

void set_states(const PublishedRun& run, int zero, cost::Stack& stack) {
  stack.expandable_segments = is_torchtitan(run);  // its run_train.sh asks for them
  // PyTorch's pipelines let go of what stages sent in May 2025 and of logits that autumn (its pull
  // requests 153383 and 165822).
  stack.torch_pipeline = stack.reduce_each_chunk = is_torchtitan(run);
  stack.holds_outputs = is_torchtitan(run) && year_of(run) < 2025;
  const bool deepspeed = is_deepspeed(run);
  // Sixteen-bit gradients: DeepSpeed in fp16, Megatron-LM before its f32 main gradients of 2022,
  // and sharded optimizers in bf16, unless the source speaks of f32 gradients.
  if (run.text("precision") == "fp16" && (deepspeed || year_of(run) < 2022)) stack.grad_bytes = 2;
  if (zero >= 1 && !says(run, "notes", "fp32 grad")) stack.grad_bytes = 2;
  // Its bf16 optimizer adds them up in f32 and keeps both.
  if (deepspeed && says(run, "notes", "fp32 grad")) stack.grad_bytes = 6;
  if (says(run, "schedule", "DeepSpeed")) stack.optimizer_bytes = cost::kDeepSpeedOptimizer;
  // It sums all gradients on every rank.
  stack.whole_reduce = deepspeed && zero == 1;
  if (stack.whole_reduce) stack.bucket_bytes = cost::kDeepSpeedBuckets;
  stack.reduce_bytes = std::min(4.0, stack.grad_bytes);
  // Aleph Alpha's trainer does too, and casts to f32 for it (its public sources,
  // optimizer/allreduce.py).
  if (is_aleph(run)) {
    stack.whole_reduce = true;
    stack.reduce_bytes = 4;
  }
  if (zero >= 3) cost::set_fsdp_states(stack);
}

// Software that has a row of its own, whatever else a source is called.
struct Named {
  StackClass kind;
  cost::Stack (*stack)(int zero);
};

std::optional<Named> named_of(const PublishedRun& run, int zero) {
  if (names(run, {"llm.c"})) return Named{StackClass::kTuned, cost::llmc_stack};
  if (is_nanotron(run)) return Named{StackClass::kOther, cost::nanotron_stack};
  if (is_torchtitan(run) || is_compiled(run)) return std::nullopt;
  const bool is_tuning = names(run, {"axolotl", "torchtune", "sfttrainer", "unsloth"});
  const bool is_trainer =
      names(run, {"transformers", "hf trainer", "accelerate", "llama-factory", "llamafactory"});
  // The same models, eager, under another engine.
  if ((is_tuning || is_trainer) && is_deepspeed(run))
    return Named{StackClass::kOther, cost::deepspeed_stack};
  if (is_tuning) return Named{StackClass::kSharded, cost::finetune_stack};
  if (is_trainer && zero < 2) return Named{StackClass::kSharded, cost::transformers_stack};
  if (is_trainer || names(run, {"torchao"})) return Named{StackClass::kSharded, cost::fsdp2_stack};
  return std::nullopt;
}

// What a row says besides: whose kernels replaced those of the model. Liger's and unsloth's are a
// kernel for each of norms, rotation, gate and loss (liger_kernel 0.8.5,
// transformers/monkey_patch.py; unsloth 2026.10, kernels).
cost::Stack named_stack(const PublishedRun& run, const Named& named, int zero) {
  cost::Stack stack = named.stack(zero);
  if (run.number("flash_attention") == 0.0) stack.flash = false;
  if (names(run, {"flash_attention_3", "flashattention-3", "fa3"})) stack.torch_attention = false;
  if (names(run, {"liger", "unsloth"})) {
    stack.fused_norms = stack.fused_passes = true;
    stack.loss = Loss::kFused;
  }
  if (names(run, {"transformerengine", "transformer engine"})) stack.cast_bytes = 0;
  return stack;
}

}  // namespace

bool says(const PublishedRun& run, std::string_view column, std::string_view words) {
  return run.text(column).find(words) != std::string::npos;
}

bool is_torchtitan(const PublishedRun& run) { return names(run, {"torchtitan"}); }
bool is_nanotron(const PublishedRun& run) { return names(run, {"nanotron"}); }

StackClass stack_class_of(const PublishedRun& run, int zero) {
  if (const auto named = named_of(run, zero)) return named->kind;
  if (is_compiled(run)) return StackClass::kTuned;
  if (is_deepspeed(run) && zero >= 3) return StackClass::kOther;
  if (has_deepspeed_pipeline(run)) return StackClass::kOther;
  if (is_vendors(run) || is_deepspeed(run)) return StackClass::kTuned;
  return zero >= 3 ? StackClass::kSharded : StackClass::kOther;
}

cost::Stack stack_of(const PublishedRun& run, int zero) {
  cost::Stack stack;
  if (const auto named = named_of(run, zero)) {
    stack = named_stack(run, *named, zero);
  } else {
    set_kernels(run, zero, stack);
    set_overlap(run, zero, stack);
    set_states(run, zero, stack);
  }
  if (run.text("precision") == "fp32") {
    stack.weight_bytes = stack.grad_bytes = stack.reduce_bytes = 4;
    stack.optimizer_bytes = 8;
    stack.autocast_bytes = 0;
  }
  return stack;
}

}  // namespace lockstep::backtest
