#include "lockstep/model/unit_builder.h"

#include <cmath>
#include <utility>

namespace lockstep::model {

using mesh::Axis;

UnitBuilder::UnitBuilder(const ModelConfig& config, UnitKind kind, std::string prefix,
                         std::string hf_prefix)
    : config_(config), prefix_(std::move(prefix)), hf_prefix_(std::move(hf_prefix)) {
  unit_.kind = kind;
  unit_.params.reserve(20);
  unit_.matmuls.reserve(8);
}

Init UnitBuilder::weight_init(bool into_residual) const {
  // The residual sum of 2 layers terms keeps its variance (GPT-2 report, section 2.3).
  if (!into_residual) return {InitKind::kNormal, config_.init_std};
  return {InitKind::kNormal,
          config_.init_std / std::sqrt(2.0 * static_cast<double>(config_.layers))};
}

Param& UnitBuilder::param(Role role, std::string_view name, std::string_view hf,
                          std::vector<std::int64_t> shape) {
  Param param;
  param.name = prefix_ + std::string(name);
  param.hf.pattern = hf.empty() ? "" : hf_prefix_ + std::string(hf);
  param.shape = std::move(shape);
  param.role = role;
  param.init = weight_init(false);
  unit_.params.push_back(std::move(param));
  return unit_.params.back();
}

void UnitBuilder::norm(std::string_view name, std::string_view hf, std::int64_t width) {
  if (config_.norm == NormKind::kPlain) return;
  Param& gain =
      param(Role::kNorm, std::string(name) + ".weight", std::string(hf) + ".weight", {width});
  gain.decays = false;
  gain.init = {config_.norm == NormKind::kRmsNormPlusOne ? InitKind::kZeros : InitKind::kOnes, 0.0};
  if (config_.norm != NormKind::kLayerNorm) return;
  Param& bias = param(Role::kNorm, std::string(name) + ".bias", std::string(hf) + ".bias", {width});
  bias.decays = false;
  bias.init = {InitKind::kZeros, 0.0};
}

void UnitBuilder::linear(const Linear& linear) {
  Param& weight =
      param(linear.role, linear.name + ".weight", linear.hf + ".weight", {linear.out, linear.in});
  weight.init = weight_init(linear.into_residual);
  if (linear.split != Split::kNone)
    weight.sharded = {{Axis::kTensor, linear.split == Split::kColumn ? 0 : 1, linear.grain}};
  if (!linear.bias) return;
  Param& bias = param(linear.role, linear.name + ".bias", linear.hf + ".bias", {linear.out});
  bias.init = {InitKind::kZeros, 0.0};
  bias.decays = false;
  if (linear.split == Split::kColumn) bias.sharded = {{Axis::kTensor, 0, linear.grain}};
}

void UnitBuilder::matmul(std::string_view name, std::int64_t k, std::int64_t n, Split split) {
  unit_.matmuls.push_back({std::string(name), k, n, 1, 1, split, false});
}

void UnitBuilder::attention(std::int64_t window) {
  const ModelConfig& c = config_;
  const std::int64_t q = c.heads * c.head_dim;
  const std::int64_t kv = c.kv_heads * c.head_dim;
  const auto project = [&](const char* name, const char* hf, std::int64_t out) {
    linear({Role::kAttention, name, hf, c.hidden, out, Split::kColumn, c.head_dim, c.qkv_bias});
  };
  project("attn.q", "self_attn.q_proj", q);
  project("attn.k", "self_attn.k_proj", kv);
  project("attn.v", "self_attn.v_proj", kv);
  if (c.qk_norm != QkNorm::kNone && c.norm != NormKind::kPlain) {
    const bool wide = c.qk_norm == QkNorm::kWide;
    const auto norm_of = [&](const char* name, const char* hf, std::int64_t width) {
      norm(name, hf, wide ? width : c.head_dim);
      if (wide) unit_.params.back().sharded = {{Axis::kTensor, 0, c.head_dim}};
      unit_.params.back().over_heads = !wide;
    };
    norm_of("attn.q_norm", "self_attn.q_norm", q);
    norm_of("attn.k_norm", "self_attn.k_norm", kv);
  }
  linear({Role::kAttention, "attn.o", "self_attn.o_proj", q, c.hidden, Split::kRow, c.head_dim,
          c.linear_bias, true});
  matmul("qkv", c.hidden, q + 2 * kv, Split::kColumn);
  matmul("o", q, c.hidden, Split::kRow);
  unit_.attention = Attention{c.heads, c.kv_heads, c.head_dim, c.head_dim, window};
}

void UnitBuilder::swiglu(std::string_view name, std::string_view hf, std::int64_t ffn, Role role) {
  const std::string ours(name);
  const std::string theirs(hf);
  const std::int64_t h = config_.hidden;
  linear({role, ours + ".gate", theirs + ".gate_proj", h, ffn, Split::kColumn});
  linear({role, ours + ".up", theirs + ".up_proj", h, ffn, Split::kColumn});
  linear({role, ours + ".down", theirs + ".down_proj", ffn, h, Split::kRow, 1, false, true});
  matmul(ours + ".gate_up", h, 2 * ffn, Split::kColumn);
  matmul(ours + ".down", ffn, h, Split::kRow);
}

void UnitBuilder::stacked(const char* name, const std::string& hf, std::int64_t out,
                          std::int64_t in, Split split) {
  const Moe& moe = config_.moe;
  Param& weight = param(Role::kExpert, name, hf, {moe.experts, out, in});
  weight.init = weight_init(split == Split::kRow);
  weight.sharded = {{Axis::kExpert, 0, 1},
                    {Axis::kExpertTensor, split == Split::kColumn ? 1 : 2, 1}};
  weight.experts = moe.experts;
  weight.active = moe.top_k;
}

void UnitBuilder::experts(bool mixtral) {
  const Moe& moe = config_.moe;
  const std::int64_t h = config_.hidden;
  const std::int64_t f = moe.expert_ffn;
  const std::string base = mixtral ? "block_sparse_moe." : "mlp.";
  linear({Role::kRouter, "moe.router", base + "gate", h, moe.experts});
  matmul("router", h, moe.experts, Split::kNone);
  if (moe.router_bias) {
    Param& bias = param(Role::kRouter, "moe.router.bias", base + "gate.e_score_correction_bias",
                        {moe.experts});
    bias.init = {InitKind::kZeros, 0.0};
    bias.decays = false;
    bias.trained = false;
  }
  const std::string one = base + "experts.{e}.";
  stacked("moe.experts.gate.weight", one + (mixtral ? "w1.weight" : "gate_proj.weight"), f, h,
          Split::kColumn);
  stacked("moe.experts.up.weight", one + (mixtral ? "w3.weight" : "up_proj.weight"), f, h,
          Split::kColumn);
  stacked("moe.experts.down.weight", one + (mixtral ? "w2.weight" : "down_proj.weight"), h, f,
          Split::kRow);
  unit_.matmuls.push_back(
      {"experts.gate_up", h, 2 * f, moe.experts, moe.top_k, Split::kColumn, true});
  unit_.matmuls.push_back({"experts.down", f, h, moe.experts, moe.top_k, Split::kRow, true});
  if (moe.shared_ffn == 0) return;
  // qwen2-moe has one shared expert, deepseek several stored as one wide MLP.
  swiglu("moe.shared", moe.shared_gate ? "mlp.shared_expert" : "mlp.shared_experts", moe.shared_ffn,
         Role::kSharedExpert);
  if (!moe.shared_gate) return;
  linear({Role::kRouter, "moe.shared_gate", "mlp.shared_expert_gate", h, 1});
  matmul("shared_gate", h, 1, Split::kNone);
}

void UnitBuilder::token_embedding(std::string_view hf) {
  Param& weight = param(Role::kEmbedding, "weight", hf, {config_.vocab, config_.hidden});
  weight.sharded = {{Axis::kTensor, 0, 1, /*padded=*/true}};
}

void UnitBuilder::vocabulary_head(std::string_view hf_norm, std::string_view hf) {
  norm("norm", hf_norm, config_.hidden);
  Param& weight =
      param(Role::kHead, "weight", config_.tied ? "" : hf, {config_.vocab, config_.hidden});
  weight.sharded = {{Axis::kTensor, 0, 1, /*padded=*/true}};
  weight.tied = config_.tied;
  matmul("head", config_.hidden, config_.vocab, Split::kColumn);
}

Model assemble(const ModelConfig& config, Unit embed, Unit block, Unit head) {
  Model model{config, {}, {}};
  model.distinct.reserve(3);
  model.distinct.push_back(std::move(embed));
  model.distinct.push_back(std::move(block));
  model.distinct.push_back(std::move(head));
  model.order.assign(static_cast<std::size_t>(config.layers) + 2, 1);
  model.order.front() = 0;
  model.order.back() = 2;
  return model;
}

}  // namespace lockstep::model
