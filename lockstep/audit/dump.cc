#include "lockstep/audit/dump.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lockstep/audit/rank_file.h"
#include "lockstep/base/check.h"
#include "lockstep/base/json.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/config/diagnostic.h"
#include "lockstep/hf/config_json.h"
#include "lockstep/hf/weights.h"
#include "lockstep/model/hf_names.h"

namespace lockstep::audit {
namespace {

constexpr std::string_view kSchema = "lockstep.audit/1";
constexpr std::int64_t kMostRanks = 1 << 16;
constexpr const char* kHead = "lm_head.weight";

Result<std::string> text_of(const Json& json, const std::string& key) {
  const Json* const value = json.find(key);
  if (value != nullptr && value->is_text()) return value->as_text();
  return bad_dump(join_parts("audit.json: `", key, "` must be text"));
}

Result<void> read_layout(const Json& json, Dump& dump) {
  const Json* const layout = json.find("layout");
  if (layout == nullptr || layout->is_null()) return {};
  if (!layout->is_object()) return bad_dump("audit.json: `layout` must be an object");
  for (const auto& [key, value] : layout->members()) {
    const bool is_degree = value.is_int() && value.as_int() >= 1;
    if (!is_degree && !value.is_bool())
      return bad_dump(join_parts("audit.json: `layout.", key, "` is ", value.dump()),
                      "a degree, at least 1, or true or false");
    dump.degrees[key] = is_degree ? value.as_int() : std::int64_t{value.as_bool()};
  }
  return {};
}

Result<void> read_model(const Json& json, Dump& dump) {
  const Json* const config = json.find("config");
  if (config == nullptr) return bad_dump("audit.json: `config` is missing");
  config::Report report;
  auto read = hf::read_config(*config, "config of " + dump.path + "/audit.json", report);
  if (!read) return report.first_error();
  read->model.name = dump.path;
  dump.model = LS_TRY(model::describe(read->model));
  if (read->model.moe.experts > 0)
    return bad_dump("the model has routed experts, which are not audited yet",
                    "dense models are: gpt2, llama, mistral, qwen2, qwen3, olmo2, gemma2");
  return {};
}

Result<Json> read_about(const std::string& folder, Dump& dump) {
  const MappedFile file = LS_TRY(MappedFile::open(folder + "/audit.json"));
  Result<Json> parsed = Json::parse(file.text());
  if (!parsed.ok()) return bad_dump("audit.json: " + parsed.error().message);
  const Json& json = *parsed;
  if (!json.is_object()) return bad_dump("audit.json holds no object");
  if (const std::string schema = LS_TRY(text_of(json, "schema")); schema != kSchema)
    return bad_dump(join_parts("audit.json: schema is `", schema, "`"),
                    join_parts("this version reads ", kSchema));
  dump.framework = LS_TRY(text_of(json, "framework"));
  const Json* const ranks = json.find("ranks");
  if (ranks == nullptr || !ranks->is_int() || ranks->as_int() < 1 || ranks->as_int() > kMostRanks)
    return bad_dump(join_parts("audit.json: `ranks` must be 1 to ", kMostRanks));
  dump.ranks = static_cast<int>(ranks->as_int());
  const std::string compute = LS_TRY(text_of(json, "compute"));
  const auto dtype = parse_dtype(compute);
  if (!dtype || (*dtype != DType::kF64 && *dtype != DType::kF32 && *dtype != DType::kBF16))
    return bad_dump(join_parts("audit.json: compute is `", compute, "`"), "f64, f32 or bf16");
  dump.compute = *dtype;
  LS_TRY(read_layout(json, dump));
  LS_TRY(read_model(json, dump));
  return parsed;
}

// By tensor.
using Pieces = std::map<std::string, std::vector<Piece>>;

// Of a tied model the head may be there as well, as a pipeline's last stage has it.
Result<std::vector<Tensor>> join(const std::string& what, const model::Model& model, Pieces& pieces,
                                 Dump& dump) {
  std::vector<Tensor> tensors;
  Result<void> done;
  const auto add = [&](const std::string& name, const Shape& shape) {
    if (!done.ok()) return;
    const auto found = pieces.find(name);
    if (found == pieces.end()) {
      done = bad_dump(join_parts("no ", what, " of `", name, "`"),
                      "names must be those of Hugging Face; Audit(rename=...) gives them");
      return;
    }
    Result<Assembled> made = assemble(what, name, shape, found->second);
    if (!made.ok()) {
      done = made.error();
      return;
    }
    tensors.push_back(std::move(made->tensor));
    std::ranges::move(made->differ, std::back_inserter(dump.differ));
    pieces.erase(found);
  };
  model::for_each_hf_tensor(model,
                            [&](const model::HfTensor& tensor) { add(tensor.name, tensor.shape); });
  if (done.ok() && model.config.tied && pieces.contains(kHead))
    add(kHead, {model.config.vocab, model.config.hidden});
  LS_TRY(std::move(done));
  if (!pieces.empty())
    return bad_dump(join_parts(what, " of `", pieces.begin()->first, "`, which the model has not"),
                    "names must be those of Hugging Face; Audit(rename=...) gives them");
  return tensors;
}

// The weights that the step began with, from a Hugging Face directory.
Result<void> add_directory(const std::string& path, const hf::Weights& weights, Pieces& pieces) {
  for (const auto& [name, stored] : weights.all()) {
    const files::TensorInfo& info = stored.entry->info;
    const auto dtype = files::dtype_of(info.type);
    if (!dtype) return bad_dump(join_parts(path, ": `", name, "` is ", to_text(info.type)));
    pieces[name].push_back({.region = {Shape(info.shape.size(), 0), info.shape},
                            .shape = info.shape,
                            .bytes = stored.entry->bytes,
                            .dtype = *dtype});
  }
  return {};
}

// Before memory is taken: a model that the files cannot hold is none of theirs.
Result<void> check_size(const Dump& dump, const std::vector<RankFile>& files,
                        const std::string& what) {
  std::int64_t held = 0;
  for (const RankFile& file : files)
    for (const auto& [kind, pieces] : file.pieces)
      for (const auto& [name, piece] : pieces)
        if (piece.bytes && kind == what) held += numel(piece.region);
  const std::int64_t wanted = model::count(dump.model).total;
  if (held >= wanted) return {};
  return bad_dump(
      join_parts("its files hold ", held, " elements of ", what, "s, and its model has ", wanted),
      "is the dump of every rank there?");
}

Result<void> join_tensors(const Json& about, std::vector<RankFile>& files, Dump& dump) {
  Pieces weights, gradients;
  const Json* const directory = about.find("weights");
  const bool has_directory = directory != nullptr && directory->is_text();
  LS_TRY(check_size(dump, files, "gradient"));
  if (!has_directory) LS_TRY(check_size(dump, files, "weight"));
  for (RankFile& file : files)
    for (auto& [kind, pieces] : file.pieces)
      for (auto& [name, piece] : pieces)
        (kind == "weight" ? weights : gradients)[name].push_back(std::move(piece));
  std::optional<hf::Weights> stored;
  if (has_directory) {
    if (!weights.empty())
      return bad_dump("audit.json names weights, and ranks have written some too");
    config::Report report;
    stored = hf::Weights::open(directory->as_text(), report);
    if (!stored) return report.first_error();
    LS_TRY(add_directory(directory->as_text(), *stored, weights));
  }
  dump.weights = LS_TRY(join("weight", dump.model, weights, dump));
  dump.gradients = LS_TRY(join("gradient", dump.model, gradients, dump));
  return {};
}

// Samples in the order of data ranks and their microbatches; ranks that share samples must have
// written the same.
Result<void> join_samples(std::vector<RankFile>& files, Dump& dump) {
  std::map<std::pair<int, int>, std::pair<int, std::vector<Sample>>> batches;
  std::size_t longest = 0;
  for (RankFile& file : files) {
    if (file.data_ranks != files.front().data_ranks)
      return bad_dump(join_parts("rank ", file.rank, " says ", file.data_ranks,
                                 " data ranks, and rank 0 ", files.front().data_ranks));
    for (auto& [place, samples] : file.batches) {
      for (const Sample& sample : samples) longest = std::max(longest, sample.tokens.size());
      const auto [known, is_new] = batches.try_emplace(place, file.rank, std::move(samples));
      const auto same = [](const Sample& a, const Sample& b) {
        return a.tokens == b.tokens && a.labels == b.labels;
      };
      if (!is_new && !std::ranges::equal(known->second.second, samples, same))
        return bad_dump(
            join_parts("ranks ", known->second.first, " and ", file.rank, " are data rank ",
                       place.first, " and have other tokens in microbatch ", place.second),
            "Audit(data=(rank, ranks)) says which ranks share samples");
    }
  }
  dump.data_ranks = files.front().data_ranks;
  std::set<int> seen;
  for (auto& [place, batch] : batches) {
    seen.insert(place.first);
    std::ranges::move(batch.second, std::back_inserter(dump.samples));
  }
  if (std::ssize(seen) != dump.data_ranks)
    return bad_dump(
        join_parts("samples of ", seen.size(), " of ", dump.data_ranks, " data ranks are there"));
  for (Sample& sample : dump.samples) {
    sample.tokens.resize(longest, 0);  // behind all that counts, where nothing sees them
    sample.labels.resize(longest, kIgnored);
  }
  for (const Sample& sample : dump.samples)
    for (const std::int64_t token : sample.tokens)
      if (token >= dump.model.config.vocab)
        return bad_dump(
            join_parts("token ", token, " of a vocabulary of ", dump.model.config.vocab));
  if (dump.live() == 0) return bad_dump("no label of the batch counts");
  return {};
}

Result<void> join_said(const std::vector<RankFile>& files, Dump& dump) {
  for (const RankFile& file : files) {
    const auto take = [](const auto& from, auto& into) {
      if (from && !into) into = from;
    };
    take(file.said.loss_sum, dump.said.loss_sum);
    take(file.said.loss, dump.said.loss);
    take(file.said.grad_norm, dump.said.grad_norm);
    take(file.said.tokens, dump.said.tokens);
  }
  return {};
}

}  // namespace

std::int64_t Sample::live() const {
  return std::ssize(labels) - std::ranges::count(labels, kIgnored);
}

std::int64_t Dump::live() const {
  std::int64_t all = 0;
  for (const Sample& sample : samples) all += sample.live();
  return all;
}

std::int64_t Dump::degree(const std::string& name) const {
  const auto found = degrees.find(name);
  return found == degrees.end() ? 1 : found->second;
}

int Dump::microbatches() const {
  int most = 0;
  for (const Sample& sample : samples) most = std::max(most, sample.microbatch + 1);
  return most;
}

Result<Dump> read_dump(const std::string& folder) {
  Dump dump;
  dump.path = folder;
  const Json about = LS_TRY(read_about(folder, dump));
  std::vector<RankFile> files;
  for (int rank = 0; rank < dump.ranks; ++rank) files.push_back(LS_TRY(read_rank(folder, rank)));
  LS_TRY(join_samples(files, dump));
  LS_TRY(join_tensors(about, files, dump));
  LS_TRY(join_said(files, dump));
  return dump;
}

}  // namespace lockstep::audit
