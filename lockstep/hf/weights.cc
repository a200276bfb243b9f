#include "lockstep/hf/weights.h"

#include <filesystem>
#include <set>
#include <utility>

#include "lockstep/base/json.h"
#include "lockstep/base/mapped_file.h"

namespace lockstep::hf {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

config::Diagnostic misfit(const std::string& message, std::vector<std::string> notes = {},
                          const std::string& help = "") {
  return {.code = Code::kBadHfWeights, .message = message, .notes = std::move(notes), .help = help};
}

// File of each tensor, as the index has it.
using WeightMap = std::map<std::string, std::string>;

std::optional<WeightMap> read_index(const std::string& path, config::Report& report) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file.ok()) return report.add(file.error()), std::nullopt;
  const Result<Json> json = Json::parse(file->text());
  if (!json.ok())
    return report.add(misfit("`" + path + "`: " + json.error().message)), std::nullopt;
  const Json* const map = json->is_object() ? json->find("weight_map") : nullptr;
  if (map == nullptr || !map->is_object())
    return report.add(misfit("`" + path + "` has no object weight_map")), std::nullopt;
  WeightMap read;
  for (const auto& [name, value] : map->members()) {
    const bool is_plain = value.is_text() && !value.as_text().empty() &&
                          value.as_text().find('/') == std::string::npos;
    if (!is_plain)
      report.add(misfit("`" + path + "`: the file of tensor `" + name + "` is " + value.dump(), {},
                        "it must be the name of a file in the same folder"));
    else
      read.emplace(name, value.as_text());
  }
  return read;
}

// A folder without safetensors, and what can be done about it.
Error no_weights(const std::string& folder) {
  const bool pickled =
      is_file(folder + "/pytorch_model.bin") || is_file(folder + "/pytorch_model.bin.index.json");
  return {Code::kFileUnreadable,
          join_parts("`", folder, "` has neither ", kSingle, " nor ", kIndex),
          pickled ? "pickled weights are not read; load them in transformers and save_pretrained() "
                    "them again"
                  : ""};
}

}  // namespace

std::optional<Weights> Weights::open(const std::string& folder, config::Report& report) {
  Weights made;
  made.folder_ = folder;
  const int before = report.num_errors();
  WeightMap listed;
  std::set<std::string> names;
  if (is_file(folder + "/" + kSingle)) {
    names.insert(kSingle);
  } else if (is_file(folder + "/" + kIndex)) {
    const auto index = read_index(folder + "/" + kIndex, report);
    if (index) listed = *index;
    for (const auto& [name, file] : listed) names.insert(file);
  } else {
    report.add(no_weights(folder));
  }
  for (const std::string& name : names) {
    Result<files::Safetensors> file = files::Safetensors::open(folder + "/" + name);
    if (!file.ok()) {
      report.add(file.error());
      continue;
    }
    made.files_.push_back(*std::move(file));
    for (const files::TensorEntry& entry : made.files_.back().entries())
      if (const auto [at, fresh] = made.tensors_.emplace(entry.info.name, Stored{&entry, name});
          !fresh)
        report.add(misfit(join_parts("tensor `", entry.info.name,
                                     "` is in two files: ", at->second.file, " and ", name)));
  }
  if (report.num_errors() > before) return std::nullopt;
  std::vector<std::string> absent;
  for (const auto& [name, file] : listed)
    if (const Stored* stored = made.find(name); stored == nullptr || stored->file != file)
      absent.push_back("`" + name + "` is not in " + file);
  if (!absent.empty())
    report.add(misfit(join_parts("`", folder, "/", kIndex, "` does not fit the files it lists"),
                      std::move(absent)));
  if (report.num_errors() > before) return std::nullopt;
  return made;
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

const Weights::Stored* Weights::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace lockstep::hf
