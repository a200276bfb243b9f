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

inline std::vector<spec::Spec> family_specs() {
  return {gpt2_spec(), qwen2_spec(), qwen3_spec(), mistral_spec(), olmo2_spec(), gemma2_spec()};
}

}  // namespace lockstep::train
