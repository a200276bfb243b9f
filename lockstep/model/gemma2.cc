// Gemma 2 (arXiv 2408.00118): norms before and after attention and MLP, GeGLU (the same three
// matrices as SwiGLU), every second layer local.
#include <utility>

#include "lockstep/model/families.h"
#include "lockstep/model/unit_builder.h"

namespace lockstep::model {

Model describe_gemma2(const ModelConfig& c) {
  const auto block = [&](std::int64_t window) {
    UnitBuilder unit(c, UnitKind::kBlock, "blocks.{i}.", "model.layers.{i}.");
    unit.norm("attn_norm", "input_layernorm", c.hidden);
    unit.attention(window);
    unit.norm("attn_post_norm", "post_attention_layernorm", c.hidden);
    unit.norm("mlp_norm", "pre_feedforward_layernorm", c.hidden);
    unit.swiglu("mlp", "mlp", c.ffn);
    unit.norm("mlp_post_norm", "post_feedforward_layernorm", c.hidden);
    return unit.take();
  };
  Model model = assemble(c, rotary_embed(c), block(c.window), rotary_head(c));
  if (c.window_every > 1) {
    model.distinct.push_back(block(0));
    for (std::int64_t i = 0; i < c.layers; ++i)
      if (i % c.window_every != 0) model.order[1 + i] = 3;
  }
  return model;
}

}  // namespace lockstep::model
