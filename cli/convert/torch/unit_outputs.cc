#include <algorithm>

#include "cli/engine.h"
#include "lockstep/generate/decoder.h"
#include "lockstep/tensor/strict_kernels.h"

namespace lockstep::cli {

UnitOutputs unit_outputs(const model::Model& model, hf::ParamSource& params,
                         std::span<const std::int64_t> tokens, DType dtype) {
  tensor::request_strict_kernels();
  const auto decoder = LS_TRY(generate::Decoder::load(model, params, dtype));
  std::vector<std::vector<double>> made;
  for (const at::Tensor& output : decoder->outputs(tokens)) {
    const at::Tensor wide = output.to(at::kDouble).contiguous();
    const double* const first = wide.const_data_ptr<double>();
    made.emplace_back(first, first + wide.numel());
  }
  return made;
}

}  // namespace lockstep::cli
