#include "lockstep/hf/export.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "lockstep/base/check.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/slice.h"
#include "lockstep/files/elements.h"
#include "lockstep/files/safetensors.h"
#include "lockstep/hf/import.h"
#include "lockstep/hf/weights.h"
#include "lockstep/model/hf_names.h"
#include "lockstep/model/user_model.h"

namespace lockstep::hf {
namespace {

// Bytes of source elements in hand, besides the tensor that is being transposed.
constexpr std::int64_t kExportChunk = std::int64_t{8} << 20;

// What is not trained is added to scores in f32, in transformers too.
DType stored_as(const model::HfTensor& tensor, DType stored) {
  return tensor.pieces[0].param->trained ? stored : DType::kF32;
}

// Streams tensors into one file.
class TensorStream {
 public:
  TensorStream(ParamSource& params, DType stored, files::SafetensorsWriter& file)
      : params_(params), width_(size_of(params.type())), wanted_(stored), file_(file) {}

  Result<void> write(const model::HfTensor& tensor) {
    written_ = 0;
    stored_ = stored_as(tensor, wanted_);
    if (tensor.transposed) return transposed(tensor);
    for (std::size_t i = 0; i < tensor.pieces.size(); ++i) LS_TRY(plain(tensor, i));
    return {};
  }

 private:
  Result<void> read(const model::HfTensor& tensor, std::size_t index, std::int64_t first,
                    std::span<std::byte> out) {
    const model::Param& param = *tensor.pieces[index].param;
    const std::int64_t before =
        std::max<std::int64_t>(0, tensor.expert) * piece_of(tensor, index).numel();
    return params_.read(model::name_at(param.name, tensor.layer), param.shape, before + first, out);
  }

  Result<void> plain(const model::HfTensor& tensor, std::size_t index) {
    const std::int64_t numel = piece_of(tensor, index).numel();
    const std::int64_t stride = kExportChunk / static_cast<std::int64_t>(width_);
    for (std::int64_t first = 0; first < numel; first += stride) {
      chunk_.resize(std::min(stride, numel - first) * width_);
      LS_TRY(read(tensor, index, first, chunk_));
      LS_TRY(put(tensor, chunk_));
    }
    return {};
  }

  Result<void> transposed(const model::HfTensor& tensor) {
    std::vector<Piece> pieces;
    std::vector<std::vector<std::byte>> whole;
    for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
      pieces.push_back(piece_of(tensor, i));
      whole.emplace_back(pieces.back().numel() * width_);
      LS_TRY(read(tensor, i, 0, whole.back()));
    }
    const std::vector<ByteSpan> views(whole.begin(), whole.end());
    const std::int64_t row = pieces[0].outputs * static_cast<std::int64_t>(width_);
    const std::int64_t stride = std::max<std::int64_t>(1, kExportChunk / row);
    const std::int64_t rows = pieces[0].columns;
    for (std::int64_t first = 0; first < rows; first += stride) {
      chunk_.resize(std::min(stride, rows - first) * row);
      put_transposed(pieces, views, width_, first, chunk_);
      LS_TRY(put(tensor, chunk_));
    }
    return {};
  }

  // Rounded elements are looked at: one too large for the type has become infinite.
  Result<void> put(const model::HfTensor& tensor, ByteSpan elements) {
    if (params_.type() != stored_) {
      converted_.resize(elements.size() / width_ * size_of(stored_));
      files::convert(elements, params_.type(), converted_, stored_);
      elements = converted_;
    }
    file_.write(elements);
    const std::int64_t first = written_;
    written_ += static_cast<std::int64_t>(elements.size() / size_of(stored_));
    if (const auto found = files::first_not_finite(elements, stored_))
      return not_finite(tensor.name, first + *found, stored_);
    return {};
  }

  ParamSource& params_;
  const std::size_t width_;
  const DType wanted_;
  DType stored_ = wanted_;  // of the tensor
  files::SafetensorsWriter& file_;
  std::int64_t written_ = 0;  // elements of the tensor
  std::vector<std::byte> chunk_, converted_;
};

struct Shard {
  std::vector<model::HfTensor> tensors;
  std::int64_t bytes = 0;
};

files::TensorInfo info_of(const model::HfTensor& tensor, DType stored) {
  return {tensor.name, files::element_type(stored_as(tensor, stored)), tensor.shape};
}

// In the order of the model, each as full as the limit allows.
std::vector<Shard> shards_of(const model::Model& model, const ExportSettings& settings) {
  std::vector<Shard> shards(1);
  model::for_each_hf_tensor(model, [&](const model::HfTensor& tensor) {
    const std::int64_t bytes = files::bytes_of(info_of(tensor, settings.stored));
    if (!shards.back().tensors.empty() && shards.back().bytes + bytes > settings.shard.value)
      shards.emplace_back();
    shards.back().tensors.push_back(tensor);
    shards.back().bytes += bytes;
  });
  return shards;
}

Result<void> write_shard(const Shard& shard, ParamSource& params, files::Disk& disk,
                         const std::string& path, DType stored) {
  std::vector<files::TensorInfo> infos;
  std::map<std::string_view, const model::HfTensor*> by_name;
  for (const model::HfTensor& tensor : shard.tensors) {
    infos.push_back(info_of(tensor, stored));
    by_name.emplace(tensor.name, &tensor);
  }
  files::SafetensorsWriter file(disk, path, std::move(infos), {{"format", "pt"}},
                                files::kLeastAlign);
  TensorStream stream(params, stored, file);
  for (const files::TensorInfo& info : file.order()) LS_TRY(stream.write(*by_name.at(info.name)));
  file.finish();
  return {};
}

void write_bytes(files::Disk& disk, const std::string& path, ByteSpan bytes) {
  const auto file = disk.create(path, std::ssize(bytes));
  file->write(bytes);
  file->sync();
  file->close();
}

void write_json(files::Disk& disk, const std::string& path, const Json& json) {
  write_bytes(disk, path, as_byte_span(json.dump(2) + "\n"));
}

Result<void> copy_into(files::Disk& disk, const std::string& folder, const std::string& path) {
  const MappedFile file = LS_TRY(MappedFile::open(path));
  write_bytes(disk, folder + path.substr(path.rfind('/')), file.bytes());
  return {};
}

Result<void> write_weights(const model::Model& model, ParamSource& params, files::Disk& disk,
                           const std::string& folder, const ExportSettings& settings,
                           Exported& done) {
  const std::vector<Shard> shards = shards_of(model, settings);
  Json::Object map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1
                                 ? "model.safetensors"
                                 : strf("model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    LS_TRY(write_shard(shards[i], params, disk, folder + "/" + name, settings.stored));
    for (const model::HfTensor& tensor : shards[i].tensors) map.push_back({tensor.name, name});
    done.bytes.value += shards[i].bytes;
  }
  done.files = static_cast<int>(shards.size());
  done.tensors = std::ssize(map);
  done.parameters = model::count(model).total;
  if (shards.size() == 1) return {};
  std::ranges::sort(map, {}, &Json::Member::key);
  write_json(disk, folder + "/model.safetensors.index.json",
             Json::object({{"metadata", Json::object({{"total_parameters", done.parameters},
                                                      {"total_size", done.bytes.value}})},
                           {"weight_map", Json::object(std::move(map))}}));
  return {};
}

// A number above 0 that is all of the text.
std::optional<double> positive(std::string_view text) {
  const auto value = number_in<double>(text);
  return value && *value > 0 && std::isfinite(*value) ? value : std::nullopt;
}

constexpr std::string_view kTokenizerFiles =
    "tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.json "
    "merges.txt tokenizer.model chat_template.jinja";
constexpr const char* kGeneration = "generation_config.json";

}  // namespace

Result<Exported> write_directory(const model::Model& model, const Json& config, ParamSource& params,
                                 files::Disk& disk, const std::string& folder,
                                 const ExportSettings& settings) {
  LS_CHECK(files::can_round_to(settings.stored), "weights in ", to_text(settings.stored));
  const std::string final_name = files::without_end_slashes(folder);
  const std::string parent = files::parent_of(final_name);
  checkpoint::make_folders(disk, parent);
  const std::string fresh = join_parts(final_name, ".tmp-", ::getpid());
  Exported done;
  disk.make_folder(fresh);
  files::Unfinished unfinished(disk, fresh);
  LS_TRY(write_weights(model, params, disk, fresh, settings, done));
  write_json(disk, fresh + "/config.json", config);
  for (const auto& [name, json] : settings.made) write_json(disk, fresh + "/" + name, json);
  for (const std::string& path : settings.beside) LS_TRY(copy_into(disk, fresh, path));
  disk.sync_folder(fresh);
  disk.rename(fresh, final_name);
  unfinished.finished();
  disk.sync_folder(parent);
  return done;
}

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
  std::set<std::string> untrained;
  for (checkpoint::Slice& slice : checkpoint::untrained_slices(model::describe(*model).value()))
    untrained.insert(std::move(slice.tensor));
  std::optional<DType> type, trained;
  for (const checkpoint::TensorRecord& tensor : manifest.tensors) {
    if (tensor.role != checkpoint::Role::kWeight) continue;
    const std::optional<DType> own = files::dtype_of(tensor.type);
    const bool is_real = own && (*own == DType::kF64 || *own == DType::kF32 ||
                                 *own == DType::kBF16 || *own == DType::kF16);
    if (!is_real)
      return refuse(join_parts("has weight of tensor `", tensor.name, "` as ",
                               files::to_text(tensor.type), ", which is no type of weights"));
    type = type ? files::wider(*type, *own) : *own;
    if (!untrained.contains(tensor.name)) trained = trained ? files::wider(*trained, *own) : *own;
  }
  if (!trained) return refuse("has no weights");
  return CheckpointSource(std::move(checkpoint), *std::move(model), *type, *trained);
}

Result<void> CheckpointSource::read(const std::string& name, const std::vector<std::int64_t>& shape,
                                    std::int64_t first, std::span<std::byte> out) {
  const auto count = static_cast<std::int64_t>(out.size() / size_of(type_));
  return checkpoint_.read(
      {name, checkpoint::Role::kWeight, shape, checkpoint::whole(shape), first, first + count},
      type_, out);
}

Result<TokenizerFiles> tokenizer_files(const std::string& folder) {
  TokenizerFiles found;
  for (const std::string_view name : split(kTokenizerFiles, ' '))
    if (const std::string path = join_parts(folder, "/", name); is_file(path))
      found.paths.push_back(path);
  if (found.paths.empty())
    return Error{Code::kFileUnreadable, "`" + folder + "` has no tokenizer",
                 "tokenizer.json is the usual name of its file"};
  if (is_file(folder + "/" + kGeneration)) found.paths.push_back(folder + "/" + kGeneration);
  const Result<MappedFile> config = MappedFile::open(folder + "/config.json");
  if (!config.ok()) return found;
  const Result<Json> json = Json::parse(config->text());
  if (!json.ok() || !json->is_object()) return found;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (const Json* const token = json->find(key)) found.special.set(key, *token);
  return found;
}

}  // namespace lockstep::hf
