// Every family with rotary positions:
//   llama     arXiv 2302.13971, 2307.09288, 2407.21783, and its kin mistral, qwen2, qwen3, yi, olmo
//   gemma2    arXiv 2408.00118: norms before and after attention and MLP, GeGLU (the same three
//             matrices as SwiGLU), every second layer local
//   moe       Mixtral (arXiv 2401.04088), Qwen mixtures (arXiv 2407.10671, 2505.09388), dots.llm1
//             (arXiv 2506.05767): experts in place of the MLP
//   deepseek  V2 (arXiv 2405.04434), V3 (arXiv 2412.19437): latent attention, shared and routed
//             experts, a few dense layers first, multi-token prediction last
// They differ only in fields of ModelConfig.
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

// Mixtral's checkpoint names differ from everyone else's; its traits are what the others have.
bool is_mixtral(const ModelConfig& c) {
  return c.family == Family::kMoe && !c.moe.shared_gate && c.moe.shared_ffn == 0 &&
         c.qk_norm == QkNorm::kNone && c.moe.dense_layers == 0 &&
         c.moe.score == RouterScore::kSoftmax;
}

void fill_block(const ModelConfig& c, std::int64_t window, bool dense, UnitBuilder& unit) {
  const bool before = c.norm_place != NormPlace::kAfter, after = c.norm_place != NormPlace::kBefore;
  const bool both = before && after;
  if (before) unit.norm("attn_norm", "input_layernorm", c.hidden);
  if (c.family == Family::kDeepSeek)
    latent_attention(c, unit);
  else
    unit.attention(window);
  if (after) unit.norm(both ? "attn_post_norm" : "attn_norm", "post_attention_layernorm", c.hidden);
  // Hugging Face calls the norm before the MLP "post attention" where none is behind attention.
  if (before)
    unit.norm("mlp_norm", both ? "pre_feedforward_layernorm" : "post_attention_layernorm",
              c.hidden);
  if (dense)
    unit.swiglu("mlp", "mlp", c.ffn);
  else
    unit.experts(is_mixtral(c));
  if (after) unit.norm(both ? "mlp_post_norm" : "mlp_norm", "post_feedforward_layernorm", c.hidden);
}

Unit block(const ModelConfig& c, std::int64_t window, bool dense) {
  UnitBuilder unit(c, UnitKind::kBlock, "blocks.{i}.", "model.layers.{i}.");
  fill_block(c, window, dense, unit);
  return unit.take();
}

// Predicts one token further from the last block's output and the next token's embedding; shares
// embedding and projection with the model (V3 report, section 2.2), so it runs the head once more.
Unit prediction_block(const ModelConfig& c) {
  UnitBuilder unit(c, UnitKind::kMtp, "blocks.{i}.", "model.layers.{i}.");
  unit.norm("mtp.embed_norm", "enorm", c.hidden);
  unit.norm("mtp.hidden_norm", "hnorm", c.hidden);
  unit.linear({Role::kMlp, "mtp.join", "eh_proj", 2 * c.hidden, c.hidden});
  unit.matmul("join", 2 * c.hidden, c.hidden, Split::kNone);
  fill_block(c, c.window, /*dense=*/false, unit);
  unit.norm("mtp.head_norm", "shared_head.norm", c.hidden);
  unit.matmul("head", c.hidden, c.vocab, Split::kColumn);
  return unit.take();
}

}  // namespace

Model describe_rotary(const ModelConfig& c) {
  UnitBuilder embed(c, UnitKind::kEmbed, "embed.", "model.");
  embed.token_embedding("embed_tokens.weight");
  UnitBuilder head(c, UnitKind::kHead, "head.", "");
  head.vocabulary_head("model.norm", "lm_head.weight");
  const bool has_experts = c.moe.experts > 0;
  Model model = assemble(c, embed.take(), block(c, c.window, !has_experts), head.take());
  constexpr int kOtherBlock = 3;
  if (has_experts && c.moe.dense_layers > 0) {
    model.distinct.push_back(block(c, c.window, /*dense=*/true));
    for (std::int64_t i = 0; i < c.moe.dense_layers; ++i) model.order[1 + i] = kOtherBlock;
  }
  if (c.window_every > 1) {
    model.distinct.push_back(block(c, /*window=*/0, !has_experts));
    for (std::int64_t i = 0; i < c.layers; ++i)
      if (i % c.window_every != 0) model.order[1 + i] = kOtherBlock;
  }
  if (c.mtp_layers > 0) {
    const int index = static_cast<int>(model.distinct.size());
    model.distinct.push_back(prediction_block(c));
    model.order.insert(model.order.end() - 1, c.mtp_layers, index);
  }
  return model;
}

}  // namespace lockstep::model
