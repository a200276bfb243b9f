#include "lockstep/hf/import.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/checkpoint/file_writer.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/unit_slices.h"
#include "lockstep/hf/pieces.h"
#include "lockstep/hf/unfinished.h"
#include "lockstep/model/user_model.h"

namespace lockstep::hf {
namespace {

// Bytes of a parameter in hand, or one row of it.
constexpr std::int64_t kImportChunk = std::int64_t{8} << 20;

std::optional<Json> read_json(const std::string& path, config::Report& report) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file.ok()) return report.add(file.error()), std::nullopt;
  const std::span<const std::byte> bytes = file->bytes();
  Result<Json> json = Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (json.ok()) return *std::move(json);
  report.add(Error{Code::kBadHfConfig, path + ":" + json.error().message, json.error().help});
  return std::nullopt;
}

Result<void> stream(const HfParams::Place& place, std::vector<std::byte>& chunk,
                    checkpoint::FileWriter& file) {
  const ByteSpan stored = place.stored->entry->bytes;
  const std::int64_t row = place.piece.columns * static_cast<std::int64_t>(size_of(place.type));
  const std::int64_t stride = std::max<std::int64_t>(1, kImportChunk / row);
  for (std::int64_t first = 0; first < place.piece.rows; first += stride) {
    chunk.resize(static_cast<std::size_t>(std::min(stride, place.piece.rows - first) * row));
    HfParams::read(place, first, chunk);
    if (auto finite = check_finite(place.name, first * place.piece.columns, chunk, place.type);
        !finite.ok())
      return finite;
    file.write(chunk);
    // A transposed one needs pages of the whole tensor for every chunk.
    if (!place.piece.transposed)
      forget_pages(stored.subspan(static_cast<std::size_t>((place.piece.begin + first) * row),
                                  chunk.size()));
  }
  forget_pages(stored);
  return {};
}

Result<checkpoint::Manifest> write_weights(const Directory& directory, files::Disk& disk,
                                           const std::string& folder, Imported& done) {
  std::map<std::string_view, const HfParams::Place*> places;
  for (const HfParams::Place& place : directory.params.places()) places.emplace(place.name, &place);
  std::vector<checkpoint::TypedSlice> slices;
  for (checkpoint::Slice& slice :
       checkpoint::model_slices(directory.model, checkpoint::Role::kWeight)) {
    const auto found = places.find(slice.tensor);
    LS_CHECK(found != places.end() && found->second->shape == slice.shape, slice.tensor);
    slices.push_back({std::move(slice), files::element_type(found->second->type)});
    done.bytes.value += slices.back().bytes();
  }
  LS_CHECK(slices.size() == places.size(), places.size(), " parameters, but ", slices.size(),
           " in a checkpoint");
  done.tensors = static_cast<std::int64_t>(slices.size());
  checkpoint::FileWriter file(disk, folder, checkpoint::file_name(0), std::move(slices));
  std::vector<std::byte> chunk;
  for (const checkpoint::TypedSlice& typed : file.order())
    if (auto streamed = stream(*places.at(typed.slice.tensor), chunk, file); !streamed.ok())
      return streamed.error();
  return file.finish();
}

}  // namespace

std::optional<Directory> open_directory(const std::string& folder, config::Report& report) {
  const std::string path = folder + "/config.json";
  const std::optional<Json> json = read_json(path, report);
  if (!json) return std::nullopt;
  std::optional<HfConfig> config = read_config(*json, path, report);
  std::optional<Weights> weights = Weights::open(folder, report);
  if (!config || !weights) return std::nullopt;
  const std::filesystem::path named = std::filesystem::path(folder + "/.").lexically_normal();
  config->model.name = named.parent_path().filename().string();
  model::Model model = model::describe(config->model).value();
  std::optional<HfParams> params = HfParams::find(model, *weights, report);
  if (!params) return std::nullopt;
  return Directory{*std::move(config), json->find("model_type")->as_text(), std::move(model),
                   *std::move(weights), *std::move(params)};
}

Result<Imported> write_checkpoint(const Directory& directory, files::Disk& disk,
                                  const std::string& out, const std::string& lockstep_version) {
  Imported done;
  std::string folder = out;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const std::size_t slash = folder.rfind('/');
  if (slash != std::string::npos && slash > 0)
    checkpoint::make_folders(disk, folder.substr(0, slash));
  disk.make_folder(folder);
  Unfinished unfinished(disk, folder);
  files::replace_file(disk, folder + "/model.toml",
                      "# Of a Hugging Face " + directory.model_type +
                          " directory. A run file takes it as model.name.\n" +
                          model::model_text(directory.config.model));
  const std::string nonce = std::to_string(::getpid());
  const std::string fresh = checkpoint::begin_save(disk, folder, 0, nonce);
  Unfinished weights(disk, fresh);
  Result<checkpoint::Manifest> manifest = write_weights(directory, disk, fresh, done);
  if (!manifest.ok()) return manifest.error();
  manifest->model = model::model_facts(directory.config.model);
  manifest->layout = "a Hugging Face " + directory.model_type + " directory";
  manifest->lockstep = lockstep_version;
  done.checkpoint = checkpoint::publish(disk, folder, fresh, *manifest);
  weights.finished();
  done.model_file = folder + "/model.toml";
  unfinished.finished();
  return done;
}

}  // namespace lockstep::hf
