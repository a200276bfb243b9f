#include "lockstep/hf/checkpoint_source.h"

#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/slice.h"
#include "lockstep/files/elements.h"
#include "lockstep/model/user_model.h"

namespace lockstep::hf {
namespace {

// A type that holds every value of both.
DType wider(DType a, DType b) {
  if (a == b) return a;
  return a == DType::kF64 || b == DType::kF64 ? DType::kF64 : DType::kF32;
}

// A number above 0 that is all of the text.
std::optional<double> positive(std::string_view text) {
  const auto value = number_in<double>(text);
  return value && *value > 0 && std::isfinite(*value) ? value : std::nullopt;
}

}  // namespace

CheckpointSource::CheckpointSource(checkpoint::Checkpoint checkpoint, model::ModelConfig model,
                                   DType type)
    : checkpoint_(std::move(checkpoint)), model_(std::move(model)), type_(type) {}

Result<CheckpointSource> CheckpointSource::open(checkpoint::Checkpoint checkpoint) {
  const checkpoint::Manifest& manifest = checkpoint.manifest();
  const auto refuse = [&](const std::string& why) {
    return Error{Code::kOtherCheckpoint, "`" + checkpoint.path() + "` " + why};
  };
  Result<model::ModelConfig> model = model::model_of(manifest.model);
  if (!model.ok()) return refuse("holds no model that is known here: " + model.error().message);
  for (const auto& [key, text] : manifest.config) {
    if (key != "init_std") continue;
    const std::optional<double> began = positive(text);
    if (!began) return refuse("says that init_std was `" + text + "`, which is no number above 0");
    model->init_std = *began;
  }
  std::optional<DType> type;
  for (const checkpoint::TensorRecord& tensor : manifest.tensors) {
    if (tensor.role != checkpoint::Role::kWeight) continue;
    const std::optional<DType> own = files::dtype_of(tensor.type);
    const bool is_real = own && (*own == DType::kF64 || *own == DType::kF32 ||
                                 *own == DType::kBF16 || *own == DType::kF16);
    if (!is_real)
      return refuse(join_parts("has weight of tensor `", tensor.name, "` as ",
                               files::to_text(tensor.type), ", which is no type of weights"));
    type = type ? wider(*type, *own) : *own;
  }
  if (!type) return refuse("has no weights");
  return CheckpointSource(std::move(checkpoint), *std::move(model), *type);
}

Result<void> CheckpointSource::read(const std::string& name, const std::vector<std::int64_t>& shape,
                                    std::int64_t first, std::span<std::byte> out) {
  const auto count = static_cast<std::int64_t>(out.size() / size_of(type_));
  return checkpoint_.read(
      {name, checkpoint::Role::kWeight, shape, checkpoint::whole(shape), first, first + count},
      type_, out);
}

}  // namespace lockstep::hf
