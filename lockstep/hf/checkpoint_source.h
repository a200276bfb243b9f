// The weights of a checkpoint, to be written as a Hugging Face directory.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/hf/export.h"
#include "lockstep/model/model_config.h"

namespace lockstep::hf {

// One thread at a time.
class CheckpointSource final : public ParamSource {
 public:
  // Refuses (LS0824) a checkpoint that does not say which model it holds, or whose weights have a type
  // that cannot be written.
  static Result<CheckpointSource> open(checkpoint::Checkpoint checkpoint);

  const checkpoint::Manifest& manifest() const { return checkpoint_.manifest(); }
  const model::ModelConfig& model() const { return model_; }  // nameless; init_std of the run

  // The widest that its weights are stored in.
  DType type() const override { return type_; }
  Result<void> read(const std::string& name, const std::vector<std::int64_t>& shape,
                    std::int64_t first, std::span<std::byte> out) override;

 private:
  CheckpointSource(checkpoint::Checkpoint checkpoint, model::ModelConfig model, DType type);

  checkpoint::Checkpoint checkpoint_;
  model::ModelConfig model_;
  DType type_;
};

}  // namespace lockstep::hf
