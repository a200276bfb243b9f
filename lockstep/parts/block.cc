#include <tuple>

#include "lockstep/parts/families.h"

namespace lockstep::parts {

Written embed_list(const model::ModelConfig& config) {
  Written list;
  Builder b(config, list);
  const ValueId rows = b.part(Kind::kLookup, {}, "out", {Dim::kT, Dim::kH}, {}, "embed");
  list.output = b.reduce_rows(rows);
  if (positions(config) == model::Positions::kLearned)
    list.output =
        b.part(Kind::kPositions, {list.output}, "out", {Dim::kP, Dim::kH}, {}, "positions");
  return list;
}

// llama, mistral, qwen2, qwen3, gpt2: norms before attention and MLP.
Written block_list(const model::ModelConfig& config) {
  Written list;
  Builder b(config, list);
  const ValueId x = list.input = list.values.add("input", {Dim::kP, Dim::kH});
  const auto normed = b.norm(x, "attn_norm", "attn_normed", "input");
  const ValueId rows = b.gather_rows(normed.y);
  const ValueId qkv = b.linear(rows, Dim::kW, "qkv", "qkv", config.qkv_bias);
  std::vector<ValueId> heads = b.split_heads(qkv);
  if (config.qk_norm == model::QkNorm::kPerHead) {
    for (const auto& [i, param, name] : {std::tuple{0U, "q_norm", "q"}, {1U, "k_norm", "k"}}) {
      const auto head = b.norm(heads[i], param, name, name);
      heads[i] = b.rope({head.y})[0];
      for (const ValueId copy : head.stats()) list.never_kept.push_back(copy);
      list.never_kept.insert(list.never_kept.end(), {head.y, heads[i]});
    }
  } else {
    const std::vector<ValueId> turned = b.rope({heads[0], heads[1]});
    heads = {turned[0], turned[1], heads[2]};
  }
  const ValueId attended = b.attention(heads[0], heads[1], heads[2]);
  const ValueId middle = b.finish(attended, x, "attn_out", "middle", config.linear_bias);
  const auto mlp = b.norm(middle, "mlp_norm", "mlp_normed", "middle");
  const ValueId wide =
      b.linear(b.gather_rows(mlp.y), Dim::kG, "gate_up", "gate_up", config.linear_bias);
  const ValueId product = b.activation(wide, "product");
  list.output = b.finish(product, middle, "down", "out", config.linear_bias);
  return list;
}

}  // namespace lockstep::parts
