// Llama (arXiv 2302.13971, 2307.09288, 2407.21783) and its kin: mistral, qwen2, qwen3, yi, olmo.
// The kin differ only in fields of ModelConfig.
#include "lockstep/model/families.h"
#include "lockstep/model/unit_builder.h"

namespace lockstep::model {

Model describe_llama(const ModelConfig& c) {
  UnitBuilder block(c, UnitKind::kBlock, "blocks.{i}.", "model.layers.{i}.");
  // Hugging Face calls the norm before the MLP "post attention"; in OLMo 2 the name is meant.
  const bool after = c.norm_place == NormPlace::kAfter;
  if (!after) block.norm("attn_norm", "input_layernorm", c.hidden);
  block.attention(c.window);
  if (after) block.norm("attn_norm", "post_attention_layernorm", c.hidden);
  if (!after) block.norm("mlp_norm", "post_attention_layernorm", c.hidden);
  block.swiglu("mlp", "mlp", c.ffn);
  if (after) block.norm("mlp_norm", "post_feedforward_layernorm", c.hidden);
  return assemble(c, rotary_embed(c), block.take(), rotary_head(c));
}

}  // namespace lockstep::model
