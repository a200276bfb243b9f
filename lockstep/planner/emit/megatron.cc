// Names and meanings of flags: Megatron-LM, megatron/training/arguments.py; of --cp-comm-type:
// megatron/core/transformer/transformer_config.py.
#include <algorithm>
#include <array>

#include "lockstep/base/check.h"
#include "lockstep/planner/emit/nearest_layout.h"
#include "lockstep/spec/step.h"

namespace lockstep::planner {
namespace {

using cost::CpMethod;

class Flags {
 public:
  void add(const char* name) { text_ += join_parts(text_.empty() ? "" : " \\\n", "--", name); }
  template <class Value>
  void add(const char* name, const Value& value) {
    add(name);
    text_ += join_parts(" ", value);
  }
  std::string take() { return std::move(text_) + "\n"; }

 private:
  std::string text_;
};

void choose_schedule(NearestLayout& near) {
  const spec::Layout& l = near.layout();
  if (!near.has_pipeline()) return near.use_even_stages();
  // Its interleaved schedule takes microbatches in groups of pp.
  const bool groups = l.chunks > 1 && *l.microbatches % l.degrees.pp == 0;
  near.use_schedule(groups ? "interleaved" : "1f1b", groups ? l.chunks : 1);
}

// It counts blocks once for all stages, the most that one has; those of shorter stages are then all
// recomputed.
spec::Recompute as_many_everywhere(const spec::Layout& layout, std::int64_t layers) {
  const auto stages = static_cast<int>(layout.degrees.pp * layout.chunks);
  const std::vector<int>& asked = layout.recompute.blocks;
  const auto joined = (static_cast<int>(asked.size()) + stages - 1) / stages;
  const int most = joined * std::ranges::max(asked);
  const std::vector<int> all = spec::stage_layers(layout, layers);
  std::vector<int> made;
  for (const int blocks : all) made.push_back(std::min(most, blocks));
  return spec::with_blocks(spec::kKeepAll, all, made);
}

// Megatron recomputes norms, and activations of experts; that of a plain MLP only with all of the
// MLP.
void choose_recompute(NearestLayout& near, const model::ModelConfig& model) {
  const spec::Recompute& asked = near.layout().recompute;
  if (!asked.blocks.empty())
    return near.use_recompute(as_many_everywhere(near.layout(), model.layers));
  if (asked.block || asked == spec::kKeepAll) return;
  const bool norms = asked.attn_normed || asked.mlp_normed;
  near.use_recompute({.attn_normed = norms,
                      .mlp_normed = norms,
                      .product = asked.product && model.moe.experts > 0});
}

// TransformerEngine's all-to-all deals heads of keys like those of queries, and copies none
// (transformer_engine/pytorch/attention, AttnFuncWithCPAndQKVOA2A).
void choose_context(NearestLayout& near, const model::ModelConfig& model) {
  const spec::Layout& l = near.layout();
  const std::int64_t ranks = l.degrees.tp * l.degrees.cp;
  if (l.context == CpMethod::kUlysses && model.kv_heads % ranks != 0)
    near.use_context(CpMethod::kGather,
                     join_parts(" of ", model.kv_heads, " key-value heads on ", ranks, " ranks"));
}

void add_context(const spec::Layout& layout, Flags& flags) {
  flags.add("context-parallel-size", layout.degrees.cp);
  if (layout.degrees.cp == 1) return;
  flags.add("cp-comm-type", layout.context == CpMethod::kRing     ? "p2p"
                            : layout.context == CpMethod::kGather ? "all_gather"
                                                                  : "a2a");
}

void add_recompute(const spec::Recompute& recompute, Flags& flags) {
  if (recompute.block) {
    flags.add("recompute-granularity", "full");
    flags.add("recompute-method", recompute.blocks.empty() ? "uniform" : "block");
    flags.add("recompute-num-layers",
              recompute.blocks.empty() ? 1 : std::ranges::max(recompute.blocks));
  } else if (recompute != spec::kKeepAll) {
    flags.add("recompute-granularity", "selective");
    const std::string norms = recompute.attn_normed ? "layernorm" : "";
    const std::string product = recompute.product ? "moe_act" : "";
    flags.add("recompute-modules", norms + (norms.empty() || product.empty() ? "" : " ") + product);
  }
}

void add_zero(const NearestLayout& near, Flags& flags) {
  const spec::Layout& l = near.layout();
  if (l.zero == 0) return;
  flags.add("use-distributed-optimizer");
  if (l.zero > 1) {
    flags.add("use-megatron-fsdp");
    flags.add("data-parallel-sharding-strategy",
              l.zero == 2 ? "optim_grads" : "optim_grads_params");
  }
  if (l.degrees.dp_shard)
    flags.add("num-distributed-optimizer-instances", l.degrees.dp / *l.degrees.dp_shard);
  flags.add("overlap-grad-reduce");
  flags.add("overlap-param-gather");
}

// "'Et*9|t*9|t*8|t*6L'": embedding, layers and loss of each stage.
std::string stages_text(const std::vector<int>& layers) {
  std::string text = "'E";
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (i > 0) text += "|";
    if (layers[i] > 0) text += join_parts("t*", layers[i]);
  }
  return text + "L'";
}

// Stages count the embedding, the loss, or both as a layer where layers alone do not come out even.
void add_stages(NearestLayout& near, std::int64_t layers, Flags& flags) {
  const spec::Layout& l = near.layout();
  if (near.has_pipeline() && !l.layers.empty())
    return flags.add("pipeline-model-parallel-layout", stages_text(l.layers));
  if (near.has_pipeline() && l.chunks > 1)
    flags.add("num-virtual-stages-per-pipeline-rank", l.chunks);
  const std::int64_t stages = l.degrees.pp * l.chunks, over = layers % stages;
  if (!near.has_pipeline() || over == 0) return;
  if (stages - over > 2) {
    near.note(
        join_parts(layers, " layers on ", stages,
                   " stages need --pipeline-model-parallel-layout, which says where each lies"));
    return;
  }
  if (stages - over == 2) flags.add("account-for-embedding-in-pipeline-split");
  flags.add("account-for-loss-in-pipeline-split");
}

}  // namespace

Emitted emit_megatron(const Job& job) {
  NearestLayout near(job);
  choose_schedule(near);
  choose_recompute(near, job.model);
  choose_context(near, job.model);
  near.drop_own_settings();
  const spec::Layout& l = near.layout();
  const mesh::Degrees& d = l.degrees;
  Flags flags;
  flags.add("tensor-model-parallel-size", d.tp);
  if (d.tp > 1 && l.sp) flags.add("sequence-parallel");
  if (d.tp > 1) flags.add("tp-comm-overlap");
  flags.add("pipeline-model-parallel-size", d.pp);
  add_stages(near, job.model.layers, flags);
  add_context(l, flags);
  if (job.model.moe.experts > 0) {
    flags.add("expert-model-parallel-size", d.ep);
    flags.add("expert-tensor-parallel-size", d.etp);
  }
  if (near.has_order() && near.has_pipe_inside()) flags.add("use-tp-pp-dp-mapping");
  add_zero(near, flags);
  flags.add("micro-batch-size", job.batch.microbatch);
  flags.add("global-batch-size", job.batch.global_batch);
  flags.add("seq-length", job.batch.seq);
  add_recompute(l.recompute, flags);
  flags.add("bf16");
  if (job.fp8) flags.add("fp8-format", "hybrid");
  return near.take(flags.take());
}

std::span<const Framework> frameworks() {
  static constexpr std::array kAll = {Framework{"megatron", emit_megatron, true},
                                      Framework{"torchtitan", emit_torchtitan},
                                      Framework{"deepspeed", emit_deepspeed}};
  return kAll;
}

}  // namespace lockstep::planner
