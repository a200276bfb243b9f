#include <tuple>

#include "lockstep/parts/families.h"

namespace lockstep::parts {
namespace {

// Queries and keys are normed where the model does so, and turned. The normed ones are made again
// from the product, which is kept.
std::vector<ValueId> normed_heads(const model::ModelConfig& config, std::vector<ValueId> heads,
                                  Builder& b, Written& list) {
  if (config.qk_norm == model::QkNorm::kNone) {
    const std::vector<ValueId> turned = b.rope({heads[0], heads[1]});
    return {turned[0], turned[1], heads[2]};
  }
  for (const auto& [i, param, name] : {std::tuple{0U, "q_norm", "q"}, {1U, "k_norm", "k"}}) {
    ValueId y = kNoValue;
    if (config.qk_norm == model::QkNorm::kWide) {
      y = b.wide_norm(heads[i], param);
    } else {
      const auto head = b.norm(heads[i], param, name, name);
      for (const ValueId copy : head.stats()) list.never_kept.push_back(copy);
      y = head.y;
    }
    heads[i] = b.rope({y})[0];
    list.never_kept.insert(list.never_kept.end(), {y, heads[i]});
  }
  return heads;
}

}  // namespace

Written embed_list(const model::ModelConfig& config) {
  Written list;
  Builder b(config, list);
  const ValueId rows = b.part(Kind::kLookup, {}, "out", {Dim::kT, Dim::kH}, {}, "embed");
  list.output = b.reduce_rows(rows);
  if (config.scaled_embedding)
    list.output = b.part(Kind::kScale, {list.output}, "out", {Dim::kP, Dim::kH});
  if (positions(config) == model::Positions::kLearned)
    list.output =
        b.part(Kind::kPositions, {list.output}, "out", {Dim::kP, Dim::kH}, {}, "positions");
  return list;
}

// llama, mistral, qwen2, qwen3, gpt2: norms before attention and MLP; olmo2: behind them; gemma2:
// both. mixtral, qwen2_moe, qwen3_moe, olmoe, dots1: a mixture in place of the MLP.
Written block_list(const model::ModelConfig& config, const Sizes& sizes, bool has_experts) {
  Written list;
  Builder b(config, list);
  const bool before = config.norm_place != model::NormPlace::kAfter;
  const bool after = config.norm_place != model::NormPlace::kBefore;
  const auto behind = [&](const char* only, const char* second) {
    return !after ? "" : before ? second : only;
  };
  const ValueId x = list.input = list.values.add("input", {Dim::kP, Dim::kH});
  const ValueId normed = before ? b.norm(x, "attn_norm", "attn_normed", "input").y : x;
  const ValueId qkv = b.linear(b.gather_rows(normed), Dim::kW, "qkv", "qkv", config.qkv_bias);
  const std::vector<ValueId> heads = normed_heads(config, b.split_heads(qkv), b, list);
  const ValueId attended = b.attention(heads[0], heads[1], heads[2], sizes.window);
  const ValueId middle =
      b.finish(attended, x, "attn_out", "middle", behind("attn_norm", "attn_post_norm"));
  const ValueId mlp = before ? b.norm(middle, "mlp_norm", "mlp_normed", "middle").y : middle;
  if (has_experts) {
    const ValueId sum = mixture(mlp, config, sizes, b, list);
    list.output = b.part(Kind::kAdd, {sum, middle}, "out", {Dim::kP, Dim::kH});
    return list;
  }
  const ValueId wide =
      b.linear(b.gather_rows(mlp), Dim::kG, "gate_up", "gate_up", config.linear_bias);
  const ValueId product = b.activation(wide, "product");
  list.output = b.finish(product, middle, "down", "out", behind("mlp_norm", "mlp_post_norm"));
  return list;
}

}  // namespace lockstep::parts
