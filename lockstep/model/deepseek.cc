// DeepSeek-V2 (arXiv 2405.04434) and V3 (arXiv 2412.19437): latent attention, shared and routed
// experts, a few dense layers first, multi-token prediction last.
#include <utility>

#include "lockstep/model/families.h"
#include "lockstep/model/unit_builder.h"

namespace lockstep::model {
namespace {

void latent_attention(const ModelConfig& c, UnitBuilder& block) {
  const Mla& mla = c.mla;
  const std::int64_t q = c.heads * c.head_dim;
  const std::int64_t kv_dim = mla.nope_dim + mla.v_dim;
  const auto add = [&](const char* name, const char* hf, std::int64_t in, std::int64_t out,
                       Split split, std::int64_t grain) {
    block.linear({Role::kAttention, name, hf, in, out, split, grain});
    block.matmul(name + 5, in, out, split);  // without "attn."
  };
  if (mla.q_rank == 0) {
    add("attn.q", "self_attn.q_proj", c.hidden, q, Split::kColumn, c.head_dim);
  } else {
    add("attn.q_a", "self_attn.q_a_proj", c.hidden, mla.q_rank, Split::kNone, 1);
    block.norm("attn.q_a_norm", "self_attn.q_a_layernorm", mla.q_rank);
    add("attn.q_b", "self_attn.q_b_proj", mla.q_rank, q, Split::kColumn, c.head_dim);
  }
  add("attn.kv_a", "self_attn.kv_a_proj_with_mqa", c.hidden, mla.kv_rank + mla.rope_dim,
      Split::kNone, 1);
  block.norm("attn.kv_a_norm", "self_attn.kv_a_layernorm", mla.kv_rank);
  add("attn.kv_b", "self_attn.kv_b_proj", mla.kv_rank, c.heads * kv_dim, Split::kColumn, kv_dim);
  block.linear({Role::kAttention, "attn.o", "self_attn.o_proj", c.heads * mla.v_dim, c.hidden,
                Split::kRow, mla.v_dim, false, true});
  block.matmul("o", c.heads * mla.v_dim, c.hidden, Split::kRow);
  block.unit().attention = Attention{c.heads, c.heads, c.head_dim, mla.v_dim, c.window};
}

void fill_block(const ModelConfig& c, bool dense, UnitBuilder& unit) {
  unit.norm("attn_norm", "input_layernorm", c.hidden);
  latent_attention(c, unit);
  unit.norm("mlp_norm", "post_attention_layernorm", c.hidden);
  if (dense)
    unit.swiglu("mlp", "mlp", c.ffn);
  else
    unit.experts(false);
}

// Predicts one token further from the last block's output and the next token's embedding; shares
// embedding and projection with the model (V3 report, section 2.2), so it runs the head once more.
Unit prediction_block(const ModelConfig& c) {
  UnitBuilder unit(c, UnitKind::kMtp, "blocks.{i}.", "model.layers.{i}.");
  unit.norm("mtp.embed_norm", "enorm", c.hidden);
  unit.norm("mtp.hidden_norm", "hnorm", c.hidden);
  unit.linear({Role::kMlp, "mtp.join", "eh_proj", 2 * c.hidden, c.hidden});
  unit.matmul("join", 2 * c.hidden, c.hidden, Split::kNone);
  fill_block(c, false, unit);
  unit.norm("mtp.head_norm", "shared_head.norm", c.hidden);
  unit.matmul("head", c.hidden, c.vocab, Split::kColumn);
  return unit.take();
}

}  // namespace

Model describe_deepseek(const ModelConfig& c) {
  const auto block = [&](bool dense) {
    UnitBuilder unit(c, UnitKind::kBlock, "blocks.{i}.", "model.layers.{i}.");
    fill_block(c, dense, unit);
    return unit.take();
  };
  Model model = assemble(c, rotary_embed(c), block(false), rotary_head(c));
  if (c.moe.dense_layers > 0) {
    model.distinct.push_back(block(true));
    for (std::int64_t i = 0; i < c.moe.dense_layers; ++i) model.order[1 + i] = 3;
  }
  if (c.mtp_layers > 0) {
    const int index = static_cast<int>(model.distinct.size());
    model.distinct.push_back(prediction_block(c));
    model.order.insert(model.order.end() - 1, c.mtp_layers, index);
  }
  return model;
}

}  // namespace lockstep::model
