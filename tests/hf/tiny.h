// Tiny models of every kind that can be written, and parameters drawn by name.
#pragma once

#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "lockstep/arch/catalog.h"
#include "lockstep/arch/model_config.h"
#include "lockstep/base/random.h"
#include "lockstep/files/durable.h"
#include "lockstep/hf/export.h"

namespace lockstep::hf {

// Sizes that no two of are equal where a mix-up could hide.
inline arch::ModelConfig llama_like(const std::string& name) {
  arch::ModelConfig c;
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

inline std::vector<arch::ModelConfig> tiny_models() {
  arch::ModelConfig gpt2 = arch::find("gpt2-tiny")->config;
  gpt2.ffn = 200;
  arch::ModelConfig untied = gpt2;
  untied.tied = false;
  arch::ModelConfig llama = llama_like("llama");
  llama.head_dim = 8;
  llama.rope_scaling = {8.0, 1.0, 4.0, 16};
  llama.rope_theta = 500000.0;
  arch::ModelConfig tied = llama_like("llama-tied");
  tied.tied = true;
  arch::ModelConfig mistral = llama_like("mistral");
  mistral.window = 20;
  arch::ModelConfig open_mistral = llama_like("mistral-without-window");
  open_mistral.window = open_mistral.max_positions;
  arch::ModelConfig qwen2 = llama_like("qwen2");
  qwen2.qkv_bias = qwen2.tied = true;
  arch::ModelConfig qwen3 = llama_like("qwen3");
  qwen3.qk_norm = arch::QkNorm::kPerHead;
  qwen3.norm_eps = 1e-6;
  return {gpt2, untied, llama, tied, mistral, open_mistral, qwen2, qwen3};
}

// Of a parameter's elements.
inline RandomStream stream_of(const std::string& name) { return RandomStream(7, name); }

// All finite bit patterns may come.
inline float drawn(const RandomStream& stream, std::int64_t index) {
  const auto bits = static_cast<std::uint32_t>(stream.bits(static_cast<std::uint64_t>(index)));
  const std::uint32_t exponent = (bits >> 23) & 0xffU;
  return std::bit_cast<float>(exponent == 0xff ? bits & 0xbfffffffU : bits);
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
