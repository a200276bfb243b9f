// GPT-2 and GPT-3: Radford et al. 2019; Brown et al. 2020 (arXiv 2005.14165). GPT-3's locally
// banded layers are described as dense, as Megatron trains them.
#include "lockstep/model/unit_builder.h"

namespace lockstep::model {
namespace {

// Hugging Face keeps query, key and value in one [in, 3 out] matrix.
void fused_attention(const ModelConfig& c, UnitBuilder& block) {
  int part = 0;
  for (const char* name : {"attn.q", "attn.k", "attn.v"}) {
    const std::size_t first = block.unit().params.size();
    block.linear({Role::kAttention, name, "attn.c_attn", c.hidden, c.hidden, Split::kColumn,
                  c.head_dim, c.qkv_bias});
    for (std::size_t i = first; i < block.unit().params.size(); ++i) {
      block.unit().params[i].hf.part = part;
      block.unit().params[i].hf.parts = 3;
    }
    ++part;
  }
  block.linear({Role::kAttention, "attn.o", "attn.c_proj", c.hidden, c.hidden, Split::kRow,
                c.head_dim, c.linear_bias, true});
  block.matmul("qkv", c.hidden, 3 * c.hidden, Split::kColumn);
  block.matmul("o", c.hidden, c.hidden, Split::kRow);
  block.unit().attention = Attention{c.heads, c.heads, c.head_dim, c.head_dim, c.window};
}

}  // namespace

Model describe_gpt2(const ModelConfig& c) {
  UnitBuilder embed(c, UnitKind::kEmbed, "embed.", "transformer.");
  embed.token_embedding("wte.weight");
  embed.param(Role::kEmbedding, "positions", "wpe.weight", {c.max_positions, c.hidden});

  UnitBuilder block(c, UnitKind::kBlock, "blocks.{i}.", "transformer.h.{i}.");
  block.norm("attn_norm", "ln_1", c.hidden);
  fused_attention(c, block);
  block.norm("mlp_norm", "ln_2", c.hidden);
  block.linear(
      {Role::kMlp, "mlp.up", "mlp.c_fc", c.hidden, c.ffn, Split::kColumn, 1, c.linear_bias});
  block.linear(
      {Role::kMlp, "mlp.down", "mlp.c_proj", c.ffn, c.hidden, Split::kRow, 1, c.linear_bias, true});
  block.matmul("mlp.up", c.hidden, c.ffn, Split::kColumn);
  block.matmul("mlp.down", c.ffn, c.hidden, Split::kRow);
  for (Param& param : block.unit().params) param.hf.transposed = param.shape.size() == 2;

  UnitBuilder head(c, UnitKind::kHead, "head.", "");
  head.vocabulary_head("transformer.ln_f", "lm_head.weight");
  return assemble(c, embed.take(), block.take(), head.take());
}

}  // namespace lockstep::model
