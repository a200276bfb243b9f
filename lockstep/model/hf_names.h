// Every tensor of a model's Hugging Face checkpoint, expanded from the description: what convert
// reads and writes. Tied heads are absent, experts are separate tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/arch.h"

namespace lockstep::model {

// Rows [begin, begin + rows) of the stored tensor's output dimension hold `param`.
struct HfPiece {
  const Param* param = nullptr;  // in the Model; its name still has "{i}"
  std::int64_t begin = 0;
  std::int64_t rows = 0;
};

struct HfTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // as stored
  bool transposed = false;          // the output dimension is the last one, not the first
  std::int64_t layer = 0;           // replaces "{i}" in the parameters' names
  std::int64_t expert = -1;         // index into the leading dimension of an expert parameter
  std::vector<HfPiece> pieces;      // in order, filling the tensor
};

// Calls `visit` once per stored tensor, unit by unit. The pieces refer to `model`.
void for_each_hf_tensor(const Model& model, const std::function<void(const HfTensor&)>& visit);

// The "model_type" of config.json: "llama", "qwen3_moe". Inferred from the fields that tell the
// models of a family apart.
std::string_view hf_model_type(const ModelConfig& config);

}  // namespace lockstep::model
