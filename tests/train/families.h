// The other families, as small as tiny.h, in f64.
#pragma once

#include <vector>

#include "tests/train/tiny.h"

namespace lockstep::train {

inline spec::Spec gpt2_spec() {
  spec::Spec spec = tiny_spec(/*tied=*/true, DType::kF64);
  spec.model.name = "gpt2";
  spec.model.family = model::Family::kGpt2;
  spec.model.norm = model::NormKind::kLayerNorm;
  spec.model.qkv_bias = spec.model.linear_bias = true;
  spec.model.kv_heads = spec.model.heads;
  return spec;
}

inline spec::Spec qwen2_spec() {
  spec::Spec spec = tiny_spec(/*tied=*/true, DType::kF64);
  spec.model.name = "qwen2";
  spec.model.qkv_bias = true;
  return spec;
}

inline spec::Spec qwen3_spec() {
  spec::Spec spec = tiny_spec(/*tied=*/false, DType::kF64);
  spec.model.name = "qwen3";
  spec.model.qk_norm = model::QkNorm::kPerHead;
  return spec;
}

inline spec::Spec olmo2_spec() {
  spec::Spec spec = tiny_spec(/*tied=*/false, DType::kF64);
  spec.model.name = "olmo2";
  spec.model.qk_norm = model::QkNorm::kWide;
  spec.model.norm_place = model::NormPlace::kAfter;
  return spec;
}

inline spec::Spec mistral_spec() {
  spec::Spec spec = tiny_spec(/*tied=*/false, DType::kF64);
  spec.model.name = "mistral";
  spec.model.window = spec.batch.seq / 2;
  return spec;
}

inline spec::Spec gemma2_spec() {
  spec::Spec spec = tiny_spec(/*tied=*/true, DType::kF64);
  model::ModelConfig gemma = model::usual(model::Family::kGemma2);
  for (const auto size :
       {&model::ModelConfig::layers, &model::ModelConfig::hidden, &model::ModelConfig::heads,
        &model::ModelConfig::kv_heads, &model::ModelConfig::head_dim, &model::ModelConfig::ffn,
        &model::ModelConfig::vocab, &model::ModelConfig::max_positions})
    gemma.*size = spec.model.*size;
  gemma.window = spec.batch.seq / 2;
  gemma.attention_softcap = gemma.logit_softcap = 2.0;
  gemma.name = "gemma2";
  spec.model = gemma;
  return spec;
}

inline spec::Spec mixtral_spec() {
  spec::Spec spec = tiny_spec(/*tied=*/false, DType::kF64);
  spec.model.name = "mixtral";
  spec.model.family = model::Family::kMoe;
  spec.model.ffn = 0;
  spec.model.moe = {.experts = 5, .top_k = 2, .expert_ffn = 32};
  spec.train.moe_aux_loss_coeff = 0.05;
  spec.train.moe_z_loss_coeff = 0.01;
  return spec;
}

inline spec::Spec olmoe_spec() {
  spec::Spec spec = mixtral_spec();
  spec.model.name = "olmoe";
  spec.train.moe_aux_loss_coeff = spec.train.moe_z_loss_coeff = 0;
  spec.model.qk_norm = model::QkNorm::kWide;
  spec.model.moe.top_k = 3;
  spec.model.moe.norm_topk_prob = false;
  return spec;
}

// The first block dense, and experts that every token meets.
inline spec::Spec qwen2_moe_spec() {
  spec::Spec spec = mixtral_spec();
  spec.model.name = "qwen2_moe";
  spec.model.qkv_bias = spec.model.moe.shared_gate = true;
  spec.model.moe.shared_ffn = 48;
  spec.model.moe.dense_layers = 1;
  spec.model.ffn = 96;
  return spec;
}

// Experts chosen by biased sigmoids, of two of four groups.
inline spec::Spec dots1_spec() {
  spec::Spec spec = mixtral_spec();
  spec.model.name = "dots1";
  spec.model.qk_norm = model::QkNorm::kPerHead;
  spec.model.moe = {.experts = 8,
                    .top_k = 2,
                    .expert_ffn = 32,
                    .shared_ffn = 32,
                    .router_bias = true,
                    .score = model::RouterScore::kSigmoid,
                    .groups = 4,
                    .top_groups = 2,
                    .routed_scale = 2.5};
  spec.train.moe_bias_update_rate = 0.01;
  return spec;
}

inline std::vector<spec::Spec> family_specs() {
  return {gpt2_spec(),   qwen2_spec(),   qwen3_spec(), mistral_spec(),   olmo2_spec(),
          gemma2_spec(), mixtral_spec(), olmoe_spec(), qwen2_moe_spec(), dots1_spec()};
}

// A layout's name for this model: tensor ranks share every expert.
inline std::string name_for(const spec::Spec& spec, const std::string& layout) {
  if (spec.model.moe.experts == 0 || !layout.starts_with("tp")) return layout;
  return layout + " etp" + layout.substr(2, layout.find(' ') - 2);
}

}  // namespace lockstep::train
