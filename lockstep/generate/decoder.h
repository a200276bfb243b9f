// A model's weights and the keys and values of one text that grows: the logits of its next token.
// The passes are those of training, as lists of parts, with attention over cached keys in place of
// attention over a sequence (parts::UnitPass::kGenerate).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/result.h"
#include "lockstep/hf/export.h"
#include "lockstep/model/arch.h"
#include "lockstep/nn/unit_runner.h"

namespace lockstep::generate {

// One thread at a time, on a CPU.
class Decoder {
 public:
  // Reads all weights, to compute in `dtype`; a weight that two units share is held once. Refuses
  // what the source refuses, and a model that has no passes. May throw IoError.
  static Result<std::unique_ptr<Decoder>> load(const model::Model& model, hf::ParamSource& params,
                                               DType dtype);

  // Begins a text, which may come to `capacity` tokens, and forgets the one before.
  // REQUIRES: 0 < capacity <= the model's max_positions.
  void begin(std::int64_t capacity);
  // Appends tokens. The logits of what comes behind them, by id: in f32, or where the decoder is
  // wider, rounded to it; good until the next call. REQUIRES: some tokens, ids of the vocabulary,
  // room for them.
  std::span<const float> extend(std::span<const std::int64_t> tokens);

  // What every unit gives for a text that begins and ends here, [tokens, columns] in `dtype`: of
  // the last one the logits behind each token. REQUIRES: as extend().
  std::vector<at::Tensor> outputs(std::span<const std::int64_t> tokens);

  std::int64_t size() const { return past_; }  // of the text
  const model::Model& model() const { return model_; }
  DType dtype() const { return dtype_; }

 private:
  Decoder(const model::Model& model, DType dtype);
  Result<void> read(hf::ParamSource& params);
  Result<at::Tensor> read_segment(hf::ParamSource& params, int segment, at::Tensor into);
  Result<void> read_router_biases(hf::ParamSource& params);
  const nn::UnitRunner& runner(int unit, std::int64_t tokens);
  at::Tensor run(int unit, std::int64_t tokens, at::Tensor given, const at::Tensor& ids);

  const model::Model model_;
  const DType dtype_;
  const std::vector<model::FlatLayout> layouts_;
  std::vector<nn::UnitBuffers> params_;    // by unit
  std::vector<at::Tensor> router_biases_;  // by unit; undefined where there is none
  // By distinct unit, for passes over one token and over the last other number of them.
  std::map<std::pair<int, std::int64_t>, std::unique_ptr<nn::UnitRunner>> runners_;
  std::unique_ptr<nn::Rope> rope_;
  std::vector<at::Tensor> keys_;  // by unit
  std::int64_t past_ = 0;
  at::Tensor logits_;
};

}  // namespace lockstep::generate
