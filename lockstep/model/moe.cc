// Mixtral (arXiv 2401.04088) and the Qwen mixtures (arXiv 2407.10671, 2505.09388): llama attention,
// experts in place of the MLP.
#include <utility>

#include "lockstep/model/families.h"
#include "lockstep/model/unit_builder.h"

namespace lockstep::model {

Model describe_moe(const ModelConfig& c) {
  // Mixtral's checkpoint names differ from everyone else's; its traits are what the others have.
  const bool mixtral = !c.moe.shared_gate && c.moe.shared_ffn == 0 && c.qk_norm == QkNorm::kNone &&
                       c.moe.dense_layers == 0;
  const auto block = [&](bool dense) {
    UnitBuilder unit(c, UnitKind::kBlock, "blocks.{i}.", "model.layers.{i}.");
    unit.norm("attn_norm", "input_layernorm", c.hidden);
    unit.attention(c.window);
    unit.norm("mlp_norm", "post_attention_layernorm", c.hidden);
    if (dense)
      unit.swiglu("mlp", "mlp", c.ffn);
    else
      unit.experts(mixtral);
    return unit.take();
  };
  Model model = assemble(c, rotary_embed(c), block(false), rotary_head(c));
  if (c.moe.dense_layers > 0) {
    model.distinct.push_back(block(true));
    for (std::int64_t i = 0; i < c.moe.dense_layers; ++i) model.order[1 + i] = 3;
  }
  return model;
}

}  // namespace lockstep::model
