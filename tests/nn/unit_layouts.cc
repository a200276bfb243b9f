#include "tests/nn/unit_layouts.h"

#include <ATen/ops/empty.h>

namespace lockstep::nn {

at::Tensor router_bias(const model::ModelConfig& config) {
  if (!config.moe.router_bias) return {};
  at::Tensor bias = at::empty({config.moe.experts}, at::kFloat);
  for (std::int64_t e = 0; e < config.moe.experts; ++e)
    bias[e] = 0.0625F * static_cast<float>(e * 7 % 5 - 2);
  return bias;
}

}  // namespace lockstep::nn
