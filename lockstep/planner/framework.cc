#include "lockstep/planner/framework.h"

#include <algorithm>

#include "lockstep/base/check.h"
#include "lockstep/base/divides.h"
#include "lockstep/cost/analytic/stacks.h"
#include "lockstep/planner/lattice.h"
#include "lockstep/planner/stage_layers.h"

namespace lockstep::planner {
namespace {

using model::CpMethod;

bool has(const auto& list, const auto& one) { return std::ranges::find(list, one) != list.end(); }

// Megatron-FSDP is stages 2 and 3; its guide knows no pipeline. Full recompute is of the first
// blocks of every stage, one number for all; what "selective" recomputes is none of what is priced.
Framework megatron() {
  return {.name = "megatron",
          .title = "Megatron-LM (core 0.19.2)",
          .source =
              "megatron-core 0.19.2 from PyPI: megatron/training/arguments.py, "
              "megatron/core/transformer/transformer_config.py; Megatron-FSDP: "
              "docs/user-guide/features/megatron_fsdp.md of NVIDIA/Megatron-LM d98e8a64dd",
          .schedules = {"1f1b", "interleaved"},
          .zero = {0, 1, 2, 3},
          .zero_piped = {0, 1},
          .grouped = {1, 3},
          .contexts = {CpMethod::kRing, CpMethod::kGather, CpMethod::kUlysses},
          .spreads_keys = true,
          .shares_keys = true,
          .etp = true,
          .combines = true,
          .pipe_inside = true,
          .tied_pipeline = true,
          .sp = true,
          .fp8 = true,
          .stack = cost::megatron_stack,
          .is_written = true};
}

// Under a pipeline FSDP2 neither reshards nor reduces before the last microbatch: stage 1. Without
// one it reduces every microbatch: stage 3, or 2 where nothing is resharded. Schedules that split
// backward passes do not go with compiled models or its attention (pytorch#161904,
// torchtitan#3584).
Framework torchtitan() {
  return {.name = "torchtitan",
          .title = "torchtitan 0.3.0",
          .source =
              "torchtitan 0.3.0 from PyPI: config/configs.py, distributed/parallel_dims.py, "
              "pipeline_parallel.py, activation_checkpoint.py, models/common/decoder.py",
          .schedules = {"gpipe", "1f1b", "interleaved"},
          .zero = {2, 3},
          .zero_piped = {1},
          .grouped = {1, 3},
          .contexts = {CpMethod::kGather},
          .combines = true,
          .sp = true,
          .fp8 = true,
          .stack = cost::torchtitan_stack,
          .is_written = true};
}

// Its tensor parallelism is AutoTP, which excludes Ulysses and pipelines; MiCS was removed.
Framework deepspeed() {
  return {.name = "deepspeed",
          .title = "DeepSpeed 0.19.8",
          .source =
              "deepspeed 0.19.8 from PyPI: runtime/config.py, runtime/engine.py, "
              "runtime/pipe/engine.py, module_inject/auto_ep_folding.py",
          .schedules = {"1f1b"},
          .zero = {0, 1, 2, 3},
          .zero_piped = {0, 1},
          .contexts = {CpMethod::kUlysses},
          .tied_pipeline = true,
          .stack = cost::deepspeed_stack,
          .is_written = true};
}

// One axis, or two: what has neither pipelines nor tensor parallelism of its own.
Framework data_parallel(std::string_view name, std::string_view title, std::string_view source,
                        cost::Stack (*stack)(int zero)) {
  return {.name = name,
          .title = title,
          .source = source,
          .zero = {2, 3},
          .grouped = {3},
          .stack = stack,
          .tp = false,
          .ep = false};
}

Framework fsdp2() {
  Framework made = data_parallel(
      "fsdp2", "eager PyTorch FSDP2, fp8 by torchao 0.18",
      "torch 2.13: torch/distributed/fsdp/_fully_shard; torchao 0.18.0 from PyPI: torchao/float8",
      cost::fsdp2_stack);
  made.fp8 = true;
  return made;
}

Framework transformers() {
  Framework made = data_parallel("transformers", "transformers 5.23's Trainer, not sharded",
                                 "transformers 5.23.0 and accelerate 1.15.0 from PyPI",
                                 cost::transformers_stack);
  made.zero = {0};
  made.grouped = {};
  return made;
}

Framework finetune() {
  Framework made = data_parallel(
      "finetune", "fine-tuning in bf16 (axolotl 0.19, TRL 1.16, torchtune 0.6)",
      "axolotl 0.19.0, trl 1.16.0 and torchtune 0.6.1 from PyPI", cost::finetune_stack);
  made.zero = {0, 2, 3};
  return made;
}

Framework llmc() {
  Framework made =
      data_parallel("llm.c", "llm.c at f1e2ace", "karpathy/llm.c: train_gpt2.cu", cost::llmc_stack);
  made.zero = {0, 1};
  made.grouped = {};
  made.only_gpt = true;
  return made;
}

Framework nanotron() {
  return {.name = "nanotron",
          .title = "nanotron 0.4",
          .source = "nanotron 0.4 from PyPI: trainer.py, optim, parallel/pipeline_parallel",
          .schedules = {"gpipe", "1f1b"},
          .zero = {0, 1},
          .zero_piped = {0, 1},
          .combines = true,
          .tied_pipeline = true,
          .sp = true,
          .stack = cost::nanotron_stack,
          .ep = false};
}

// Section 3.2.3 recomputes norms and the products from latents, section 3.3.3 that of activations.
Framework deepseek() {
  return {.name = "deepseek",
          .title = "DeepSeek-V3's trainer, by its report",
          .source = "arXiv 2412.19437, section 3",
          .schedules = {"dualpipe-v"},
          .zero = {1},
          .zero_piped = {1},
          .combines = true,
          .pipe_inside = true,
          .sp = true,
          .fp8 = true,
          .stack = cost::deepseek_stack,
          .tp = false,
          .rows = {{.attn_normed = true, .mlp_normed = true, .product = true, .qkv = true}}};
}

}  // namespace

std::span<const Framework> frameworks() {
  static const std::vector<Framework> all = {megatron(), torchtitan(),   deepspeed(),
                                             fsdp2(),    transformers(), finetune(),
                                             nanotron(), llmc(),         deepseek()};
  return all;
}

const Framework* find_framework(std::string_view name) {
  const auto found = std::ranges::find(frameworks(), name, &Framework::name);
  return found == frameworks().end() ? nullptr : &*found;
}

namespace {
bool has_keys(const Framework& f, const cost::ModelShape& shape, int tp) {
  return divides(tp, shape.kv_heads) || (f.shares_keys && divides(shape.kv_heads, tp));
}
}  // namespace

bool runs(const Framework& f, const cost::ModelShape& shape, const Core& core) {
  if (!has_keys(f, shape, core.tp)) return false;
  if ((core.tp > 1 && !f.tp) || (core.ep > 1 && !f.ep)) return false;
  if (core.cp > 1 && !has(f.contexts, core.context)) return false;
  if (core.cp > 1 && core.context == CpMethod::kUlysses && f.spreads_keys &&
      !divides(core.tp * core.cp, shape.kv_heads))
    return false;
  if (core.etp > 1 && !f.etp) return false;
  // AutoEP and AutoTP are folded into each other, or one of them is absent.
  const bool is_folded = core.tp == 1 || !shape.has_experts() || core.ep > 1;
  return f.combines || (is_folded && (core.tp == 1 || core.cp == 1));
}

bool runs(const Framework& f, const cost::ModelShape& shape, const Core& core, int pp) {
  if (pp <= 1) return true;
  if (f.schedules.empty()) return false;
  if (shape.tied && !f.tied_pipeline) return false;
  if (f.stack(0).even_stages && !divides(pp, shape.layers)) return false;
  return f.combines || (core.tp == 1 && core.cp == 1 && core.ep == 1);
}

bool runs(const Framework& f, const cost::ModelShape& shape, const Sharding& sharding, int whole,
          int pp) {
  if (whole <= 1) return sharding.zero == 1;  // shared with nobody: all stages are one
  if (!has(pp > 1 ? f.zero_piped : f.zero, sharding.zero)) return false;
  return sharding.group >= whole || (has(f.grouped, sharding.zero) && !shape.has_experts());
}

bool runs(const Framework& f, std::string_view schedule) { return has(f.schedules, schedule); }

std::vector<std::string> lacking(const Framework& f, const spec::Layout& layout,
                                 const cost::PriceRequest& r) {
  std::vector<std::string> found;
  const auto check = [&](bool is_there, std::string what) {
    if (!is_there) found.push_back(std::move(what));
  };
  const Core core{r.tp, r.cp, r.ep, r.etp, r.context};
  if (!has_keys(f, *r.shape, r.tp))
    return {join_parts("tp ", r.tp, " above ", static_cast<int>(r.shape->kv_heads),
                       " key-value heads")};
  check(runs(f, *r.shape, core),
        r.cp > 1 ? join_parts("tp ", r.tp, " with cp ", r.cp, " (", to_text(r.context), ")")
                 : join_parts("tp ", r.tp, " with ep ", r.ep, " and etp ", r.etp));
  check(runs(f, *r.shape, core, r.pp),
        join_parts("pp ", r.pp, " with this model and these degrees"));
  check(runs(f, *r.shape, {r.zero, r.shard_group()}, r.dp * r.cp, r.pp),
        join_parts("zero ", r.zero, r.pp > 1 ? " under a pipeline" : " without a pipeline",
                   r.shard_group() < r.dp * r.cp ? " in groups" : ""));
  if (r.pp > 1) {
    check(runs(f, layout.schedule), join_parts("schedule ", layout.schedule));
    const bool is_inside = r.placement == cost::Placement::kPipeInside && r.dp > 1;
    check(f.pipe_inside || !is_inside, join_parts("rank order ", to_text(layout.order)));
  }
  check(f.sp ? layout.sp || r.tp == 1 : !layout.sp || r.tp == 1,
        f.sp ? "tp without sequence parallelism" : "sequence parallelism over tp");
  const Stages stages = stages_of(r, layout.layers, layout.recompute.blocks);
  const bool is_even = std::ranges::max(stages.layers) == std::ranges::min(stages.layers);
  check(is_even || !r.stack.even_stages, "stages of unequal layers");
  const model::Drop rest = layout.recompute.drop.rest();
  check(rest == model::kKeepAll || has(f.rows, rest),
        join_parts("recompute=", spec::to_text(rest)));
  check(as_counted(r.stack, stages).recomputed == stages.recomputed,
        join_parts("recompute=", to_text(layout.recompute)));
  check(!layout.resident && !layout.prefetch, "resident and prefetch");
  check(layout.reduce == spec::default_reduce(layout.zero),
        join_parts("gradients reduced after every ", spec::name_of(layout.reduce)));
  return found;
}

}  // namespace lockstep::planner
