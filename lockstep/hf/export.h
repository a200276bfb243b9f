// Writes a model as a Hugging Face directory: config.json and its weights in one safetensors file,
// or in several and an index.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/json.h"
#include "lockstep/base/result.h"
#include "lockstep/base/units.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/files/durable.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/model_config.h"

namespace lockstep::hf {

// Where parameters come from. A tied head is not asked for.
class ParamSource {
 public:
  virtual ~ParamSource() = default;
  // Of the elements that read() gives.
  virtual DType type() const = 0;
  // Elements [first, ...) of the parameter `name` ("blocks.0.attn.q.weight"), as many as fit into
  // `out`, in row-major order. May throw IoError.
  virtual Result<void> read(const std::string& name, const std::vector<std::int64_t>& shape,
                            std::int64_t first, std::span<std::byte> out) = 0;
};

// The weights of a checkpoint. One thread at a time.
class CheckpointSource final : public ParamSource {
 public:
  // Refuses (LS0824) a checkpoint that does not say which model it holds, or whose weights have a
  // type that cannot be written.
  static Result<CheckpointSource> open(checkpoint::Checkpoint checkpoint);

  const checkpoint::Manifest& manifest() const { return checkpoint_.manifest(); }
  const model::ModelConfig& model() const { return model_; }  // nameless; init_std of the run

  // The widest that its weights are stored in, and of those that are trained.
  DType type() const override { return type_; }
  DType trained_type() const { return trained_; }
  Result<void> read(const std::string& name, const std::vector<std::int64_t>& shape,
                    std::int64_t first, std::span<std::byte> out) override;

 private:
  CheckpointSource(checkpoint::Checkpoint checkpoint, model::ModelConfig model, DType type,
                   DType trained)
      : checkpoint_(std::move(checkpoint)),
        model_(std::move(model)),
        type_(type),
        trained_(trained) {}

  checkpoint::Checkpoint checkpoint_;
  model::ModelConfig model_;
  DType type_, trained_;
};

// What a Hugging Face directory has besides its model: a tokenizer, and how to generate.
struct TokenizerFiles {
  std::vector<std::string> paths;
  Json special = Json::object();  // keys of its config.json that name tokens: bos_token_id, ...
};

// LS0004 when the folder has none of the files that transformers' tokenizers write.
Result<TokenizerFiles> tokenizer_files(const std::string& folder);

// What transformers' own writer takes as default.
inline constexpr Bytes kShardLimit{5'000'000'000};

struct JsonFile {
  std::string name;
  Json json;
};

struct ExportSettings {
  DType stored = DType::kBF16;  // one that can be rounded to (files/elements.h)
  Bytes shard = kShardLimit;    // of tensors in one file; a larger tensor has a file of its own
  std::vector<std::string> beside = {};  // paths of files that are copied into the directory
  std::vector<JsonFile> made = {};       // files that it gets besides
};

struct Exported {
  std::int64_t tensors = 0;
  std::int64_t parameters = 0;
  Bytes bytes;  // of all tensors
  int files = 0;
};

// Makes `folder`, which must not exist, and its parents, under another name first; nothing has its
// name before it is whole. Holds at most one tensor in the source's type and a few megabytes.
// Leaves nothing when the source refuses to be read, when a weight is not finite as it is stored
// (LS0841), or after an IoError.
Result<Exported> write_directory(const model::Model& model, const Json& config, ParamSource& params,
                                 files::Disk& disk, const std::string& folder,
                                 const ExportSettings& settings);

}  // namespace lockstep::hf
