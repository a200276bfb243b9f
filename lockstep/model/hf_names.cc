#include "lockstep/model/hf_names.h"

#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::model {
namespace {

// gpt2 interleaves weights and biases of its fused projection, so parts need not be neighbours.
std::vector<const Param*> parts_of(const Unit& unit, const Param& first) {
  std::vector<const Param*> parts;
  for (const Param& param : unit.params)
    if (param.hf.pattern == first.hf.pattern) parts.push_back(&param);
  LS_CHECK(static_cast<int>(parts.size()) == first.hf.parts, first.name, " has ", parts.size(),
           " of ", first.hf.parts, " parts");
  return parts;
}

HfTensor stored(const Unit& unit, const Param& first, std::int64_t layer) {
  HfTensor tensor;
  tensor.name = name_at(first.hf.pattern, layer);
  tensor.transposed = first.hf.transposed;
  tensor.layer = layer;
  tensor.shape.assign(first.shape.begin() + (first.experts > 0 ? 1 : 0), first.shape.end());
  std::int64_t rows = 0;
  for (const Param* param : parts_of(unit, first)) {
    const std::int64_t own = param->shape[param->experts > 0 ? 1 : 0];
    tensor.pieces.push_back({param, rows, own});
    rows += own;
  }
  tensor.shape[0] = rows;
  if (tensor.transposed) std::swap(tensor.shape.front(), tensor.shape.back());
  return tensor;
}

void visit_param(const Unit& unit, const Param& param, std::int64_t layer,
                 const std::function<void(const HfTensor&)>& visit) {
  HfTensor tensor = stored(unit, param, layer);
  if (param.experts == 0) {
    visit(tensor);
    return;
  }
  const std::string pattern = tensor.name;
  const std::size_t at = pattern.find("{e}");
  LS_CHECK(at != std::string::npos, pattern, " names no expert");
  for (std::int64_t expert = 0; expert < param.experts; ++expert) {
    tensor.name = std::string(pattern).replace(at, 3, std::to_string(expert));
    tensor.expert = expert;
    visit(tensor);
  }
}

std::string_view dense_type(const ModelConfig& c) {
  if (c.qk_norm == QkNorm::kWide) return "olmo2";
  if (c.qk_norm == QkNorm::kPerHead) return "qwen3";
  if (c.norm == NormKind::kPlain) return "olmo";
  if (c.qkv_bias) return "qwen2";
  return c.window > 0 ? "mistral" : "llama";
}

}  // namespace

void for_each_hf_tensor(const Model& model, const std::function<void(const HfTensor&)>& visit) {
  for (int position = 0; position < model.num_units(); ++position) {
    const Unit& unit = model.unit(position);
    for (const Param& param : unit.params)
      if (!param.hf.pattern.empty() && param.hf.part == 0)
        visit_param(unit, param, Model::layer(position), visit);
  }
}

std::string_view hf_model_type(const ModelConfig& config) {
  switch (config.family) {
    case Family::kGpt2:
      return "gpt2";
    case Family::kLlama:
      return dense_type(config);
    case Family::kMoe:
      if (config.moe.score == RouterScore::kSigmoid) return "dots1";
      if (config.moe.shared_gate) return "qwen2_moe";
      if (config.qk_norm == QkNorm::kWide) return "olmoe";
      return config.qk_norm == QkNorm::kPerHead ? "qwen3_moe" : "mixtral";
    case Family::kDeepSeek:
      return config.moe.router_bias ? "deepseek_v3" : "deepseek_v2";
    case Family::kGemma2:
      return "gemma2";
  }
  return "?";
}

}  // namespace lockstep::model
