// Tiny models of every kind that can be written, and parameters drawn by name.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/files/durable.h"
#include "lockstep/hf/export.h"
#include "lockstep/model/catalog.h"
#include "lockstep/model/model_config.h"

namespace lockstep::hf {

// Sizes that no two of are equal where a mix-up could hide.
inline model::ModelConfig llama_like(const std::string& name) {
  model::ModelConfig c;
  c.name = name;
  c.layers = 3;
  c.hidden = 48;
  c.heads = 6;
  c.kv_heads = 2;
  c.head_dim = 10;
  c.ffn = 56;
  c.vocab = 61;
  c.max_positions = 40;
  return c;
}

inline std::vector<model::ModelConfig> tiny_mixtures() {
  model::ModelConfig mixtral = llama_like("mixtral");
  mixtral.family = model::Family::kMoe;
  mixtral.ffn = 0;
  mixtral.moe = {.experts = 3, .top_k = 2, .expert_ffn = 20};
  model::ModelConfig qwen3_moe = mixtral;
  qwen3_moe.name = "qwen3_moe";
  qwen3_moe.qk_norm = model::QkNorm::kPerHead;
  qwen3_moe.moe.norm_topk_prob = false;
  model::ModelConfig qwen2_moe = mixtral;
  qwen2_moe.name = "qwen2_moe";
  qwen2_moe.head_dim = 8;
  qwen2_moe.qkv_bias = qwen2_moe.moe.shared_gate = true;
  qwen2_moe.moe.shared_ffn = 28;
  model::ModelConfig olmoe = mixtral;
  olmoe.name = "olmoe";
  olmoe.head_dim = 8;
  olmoe.qk_norm = model::QkNorm::kWide;
  model::ModelConfig dots1 = mixtral;
  dots1.name = "dots1";
  dots1.qk_norm = model::QkNorm::kPerHead;
  dots1.norm_eps = 1e-6;
  dots1.ffn = 36;
  dots1.moe = {.experts = 4,
               .top_k = 2,
               .expert_ffn = 20,
               .shared_ffn = 40,
               .dense_layers = 1,
               .router_bias = true,
               .score = model::RouterScore::kSigmoid,
               .groups = 2,
               .routed_scale = 2.5};
  return {mixtral, qwen2_moe, qwen3_moe, olmoe, dots1};
}

inline std::vector<model::ModelConfig> tiny_models() {
  model::ModelConfig gpt2 = model::find("gpt2-tiny")->config;
  gpt2.ffn = 200;
  model::ModelConfig untied = gpt2;
  untied.tied = false;
  model::ModelConfig llama = llama_like("llama");
  llama.head_dim = 8;
  llama.rope_scaling = {8.0, 1.0, 4.0, 16};
  llama.rope_theta = 500000.0;
  model::ModelConfig tied = llama_like("llama-tied");
  tied.tied = true;
  model::ModelConfig mistral = llama_like("mistral");
  mistral.window = 20;
  model::ModelConfig open_mistral = llama_like("mistral-without-window");
  open_mistral.window = open_mistral.max_positions;
  model::ModelConfig qwen2 = llama_like("qwen2");
  qwen2.qkv_bias = qwen2.tied = true;
  model::ModelConfig qwen3 = llama_like("qwen3");
  qwen3.qk_norm = model::QkNorm::kPerHead;
  qwen3.norm_eps = 1e-6;
  model::ModelConfig olmo2 = llama_like("olmo2");
  olmo2.head_dim = 8;
  olmo2.qk_norm = model::QkNorm::kWide;
  olmo2.norm_place = model::NormPlace::kAfter;
  model::ModelConfig gemma2 = model::find("gemma2-tiny")->config;
  gemma2.attention_softcap = 0.0;
  std::vector<model::ModelConfig> all = {gpt2,
                                         untied,
                                         llama,
                                         tied,
                                         mistral,
                                         open_mistral,
                                         qwen2,
                                         qwen3,
                                         olmo2,
                                         gemma2,
                                         model::find("gemma2-tiny")->config};
  std::ranges::move(tiny_mixtures(), std::back_inserter(all));
  return all;
}

// Of a parameter's elements.
inline RandomStream stream_of(const std::string& name) { return RandomStream(7, name); }

// All bit patterns may come that are finite in bf16 too.
inline float drawn(const RandomStream& stream, std::int64_t index) {
  const auto bits = static_cast<std::uint32_t>(stream.bits(static_cast<std::uint64_t>(index)));
  const bool is_beyond = (bits & 0x7fffffffU) >= 0x7f7f8000U;
  return std::bit_cast<float>(is_beyond ? bits & 0xbfffffffU : bits);
}

class DrawnParams final : public ParamSource {
 public:
  DType type() const override { return DType::kF32; }
  Result<void> read(const std::string& name, const std::vector<std::int64_t>& shape,
                    std::int64_t first, std::span<std::byte> out) override {
    static_cast<void>(shape);
    const RandomStream stream = stream_of(name);
    for (std::size_t i = 0; i < out.size() / sizeof(float); ++i) {
      const float value = drawn(stream, first + static_cast<std::int64_t>(i));
      std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
    }
    return {};
  }
};

// The machine's disk without waiting for the device: what tests here look at is in its cache.
files::Disk& hasty_disk();

// A path below the test's folder that did not exist before.
std::string fresh_folder(const std::string& name);

}  // namespace lockstep::hf
