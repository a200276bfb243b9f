// A tiny model of drawn weights.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/generate/decoder.h"

namespace lockstep::generate {

// Weights drawn by name.
class DrawnParams final : public hf::ParamSource {
 public:
  DType type() const override { return DType::kF64; }
  Result<void> read(const std::string& name, const std::vector<std::int64_t>& /*shape*/,
                    std::int64_t first, std::span<std::byte> out) override {
    const RandomStream stream(7, name);
    const std::span numbers(reinterpret_cast<double*>(out.data()), out.size() / sizeof(double));
    stream.normals(static_cast<std::uint64_t>(first), numbers);
    for (double& number : numbers) number = 0.15 * number + (spoilt ? std::nan("") : 0.0);
    return {};
  }
  bool spoilt = false;
};

inline model::ModelConfig tiny(model::Family family) {
  model::ModelConfig config = model::usual(family);
  config.name = "tiny";
  config.layers = 2;
  config.hidden = 32;
  config.heads = config.kv_heads = 4;
  config.head_dim = 8;
  config.ffn = 48;
  config.vocab = 61;
  config.max_positions = 64;
  if (family != model::Family::kGpt2) config.kv_heads = 2;
  if (family == model::Family::kMoe) config.moe = {.experts = 5, .top_k = 2, .expert_ffn = 16};
  return config;
}

inline std::unique_ptr<Decoder> decoder_of(const model::ModelConfig& config, DType dtype) {
  DrawnParams params;
  return Decoder::load(*model::describe(config), params, dtype).value();
}

inline std::vector<std::int64_t> some_tokens(std::int64_t count) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back((i * i * 7 + 3 * i) % 61);
  return tokens;
}

}  // namespace lockstep::generate
