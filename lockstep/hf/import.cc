#include "lockstep/hf/import.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/checkpoint/file_writer.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/slice.h"
#include "lockstep/files/elements.h"
#include "lockstep/files/safetensors.h"
#include "lockstep/model/user_model.h"

namespace lockstep::hf {
namespace {

// Rows and columns of a tile: 32 x 32 elements of both matrices fit into a core's first cache.
constexpr std::int64_t kTransposeTile = 32;

// out[i * out_pitch + j] = in[j * in_pitch + i] for i < rows, j < columns; pitches in elements.
template <std::size_t kWidth>
void transpose(const std::byte* in, std::int64_t in_pitch, std::byte* out, std::int64_t out_pitch,
               std::int64_t rows, std::int64_t columns) {
  const auto move = [&](std::int64_t i, std::int64_t j) {
    std::memcpy(out + (i * out_pitch + j) * kWidth, in + (j * in_pitch + i) * kWidth, kWidth);
  };
  for (std::int64_t top = 0; top < rows; top += kTransposeTile)
    for (std::int64_t left = 0; left < columns; left += kTransposeTile)
      for (std::int64_t i = top; i < std::min(rows, top + kTransposeTile); ++i)
        for (std::int64_t j = left; j < std::min(columns, left + kTransposeTile); ++j) move(i, j);
}

void transpose(std::size_t width, const std::byte* in, std::int64_t in_pitch, std::byte* out,
               std::int64_t out_pitch, std::int64_t rows, std::int64_t columns) {
  if (width == 2) return transpose<2>(in, in_pitch, out, out_pitch, rows, columns);
  if (width == 4) return transpose<4>(in, in_pitch, out, out_pitch, rows, columns);
  LS_CHECK(width == 8, "elements of ", width, " bytes");
  transpose<8>(in, in_pitch, out, out_pitch, rows, columns);
}

bool is_weight_type(DType type) {
  return type == DType::kF32 || type == DType::kBF16 || type == DType::kF16;
}

// Constants that older versions of transformers saved beside the parameters.
bool is_constant_table(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

// Gathers what does not fit, by kind, so that each kind is one message with all its tensors.
class Misfits {
 public:
  enum Kind : std::size_t { kMissing, kShape, kType, kLeftOver, kUntied };

  void add(Kind kind, std::string tensor) { tensors_[kind].push_back(std::move(tensor)); }

  void tell(const std::string& folder, config::Report& report) {
    constexpr std::pair<const char*, const char*> kWhatAndHelp[] = {
        {"missing", "config.json asks for more than the files have"},
        {"of another shape than config.json implies", ""},
        {"of a type that is not read", "F32, BF16 and F16 are"},
        {"no parameter of the model", "config.json describes another model than the files hold"},
        {"not the embedding's weight, though tie_word_embeddings is true", "one of both is wrong"}};
    for (std::size_t kind = 0; kind < tensors_.size(); ++kind) {
      const auto& [what, help] = kWhatAndHelp[kind];
      const auto count = std::ssize(tensors_[kind]);
      if (count == 0) continue;
      report.add({.code = Code::kBadHfWeights,
                  .message = join_parts(counted(count, "tensor"), " of `", folder, "` ",
                                        count == 1 ? "is " : "are ", what),
                  .notes = std::move(tensors_[kind]),
                  .help = help});
    }
  }

 private:
  std::array<std::vector<std::string>, 5> tensors_;
};

std::string place_of(const Weights::Stored& stored) {
  return stored.file + ": " + stored.entry->info.name;
}

// What comes before the names of all but the head's tensors: "model.", "transformer.".
std::string base_prefix(const model::Model& model) {
  const std::string& embedding = model.unit(0).params.front().hf.pattern;
  return embedding.substr(0, embedding.find('.') + 1);
}

// Touches a few megabytes of both at a time.
bool same_bytes(const files::TensorEntry& a, const files::TensorEntry& b) {
  constexpr std::size_t kStride = std::size_t{4} << 20;
  if (a.info.type != b.info.type || a.info.shape != b.info.shape) return false;
  for (std::size_t at = 0; at < a.bytes.size(); at += kStride) {
    const std::size_t count = std::min(kStride, a.bytes.size() - at);
    const ByteSpan one = a.bytes.subspan(at, count);
    const ByteSpan other = b.bytes.subspan(at, count);
    const bool same = std::memcmp(one.data(), other.data(), count) == 0;
    forget_pages(one);
    forget_pages(other);
    if (!same) return false;
  }
  return true;
}

// Bytes of a parameter in hand, or one row of it.
constexpr std::int64_t kImportChunk = std::int64_t{8} << 20;

std::optional<Json> read_json(const std::string& path, config::Report& report) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file.ok()) return report.add(file.error()), std::nullopt;
  Result<Json> json = Json::parse(file->text());
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
    chunk.resize(std::min(stride, place.piece.rows - first) * row);
    HfParams::read(place, first, chunk);
    if (const auto found = files::first_not_finite(chunk, place.type))
      return not_finite(place.stored->entry->info.name,
                        place.piece.stored_element(first * place.piece.columns + *found),
                        place.type);
    file.write(chunk);
    // A transposed one needs pages of the whole tensor for every chunk.
    if (!place.piece.transposed)
      forget_pages(stored.subspan((place.piece.begin + first) * row, chunk.size()));
  }
  forget_pages(stored);
  return {};
}

Result<checkpoint::Manifest> write_weights(const Directory& directory, files::Disk& disk,
                                           const std::string& folder, Imported& done) {
  std::map<std::string_view, std::vector<const HfParams::Place*>> places;  // by expert
  for (const HfParams::Place& place : directory.params.places())
    places[place.name].push_back(&place);
  std::vector<checkpoint::TypedSlice> slices;
  for (checkpoint::Slice& slice :
       checkpoint::model_slices(directory.model, checkpoint::Role::kWeight)) {
    const auto found = places.find(slice.tensor);
    LS_CHECK(found != places.end() && found->second[0]->shape == slice.shape, slice.tensor);
    const DType type = found->second[0]->type;
    for (const HfParams::Place* place : found->second)
      if (place->type != type)
        return Error{Code::kBadHfWeights,
                     join_parts("experts of ", slice.tensor, " are stored as ", to_text(type),
                                " and as ", to_text(place->type)),
                     "store all of them in one type"};
    slices.push_back({std::move(slice), files::element_type(type)});
    done.bytes.value += slices.back().bytes();
  }
  LS_CHECK(slices.size() == places.size(), places.size(), " parameters, but ", slices.size(),
           " in a checkpoint");
  done.tensors = std::ssize(slices);
  checkpoint::FileWriter file(disk, folder, checkpoint::file_name(0), std::move(slices));
  std::vector<std::byte> chunk;
  for (const checkpoint::TypedSlice& typed : file.order())
    for (const HfParams::Place* place : places.at(typed.slice.tensor))
      LS_TRY(stream(*place, chunk, file));
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
  const std::string folder = files::without_end_slashes(out);
  checkpoint::make_folders(disk, files::parent_of(folder));
  disk.make_folder(folder);
  files::Unfinished unfinished(disk, folder);
  files::replace_file(disk, folder + "/model.toml",
                      "# Of a Hugging Face " + directory.model_type +
                          " directory. A run file takes it as model.name.\n" +
                          model::model_text(directory.config.model));
  const std::string nonce = std::to_string(::getpid());
  const std::string fresh = checkpoint::begin_save(disk, folder, 0, nonce);
  files::Unfinished weights(disk, fresh);
  checkpoint::Manifest manifest = LS_TRY(write_weights(directory, disk, fresh, done));
  manifest.model = model::model_facts(directory.config.model);
  manifest.layout = "a Hugging Face " + directory.model_type + " directory";
  manifest.lockstep = lockstep_version;
  done.checkpoint = checkpoint::publish(disk, folder, fresh, manifest);
  weights.finished();
  done.model_file = folder + "/model.toml";
  unfinished.finished();
  return done;
}

Piece piece_of(const model::HfTensor& tensor, std::size_t index) {
  const model::HfPiece& piece = tensor.pieces[index];
  const model::HfPiece& last = tensor.pieces.back();
  return {.begin = piece.begin,
          .rows = piece.rows,
          .columns = piece.param->shape.size() > 1 ? piece.param->shape.back() : 1,
          .outputs = last.begin + last.rows,
          .transposed = tensor.transposed};
}

void take_rows(const Piece& piece, ByteSpan stored, std::size_t width, std::int64_t first,
               std::span<std::byte> out) {
  const std::size_t row = piece.columns * width;
  const auto rows = static_cast<std::int64_t>(out.size() / row);
  LS_CHECK(out.size() % row == 0 && first >= 0 && first + rows <= piece.rows, "rows [", first,
           ", + ", rows, ") of ", piece.rows);
  LS_CHECK(stored.size() == piece.outputs * row);
  if (rows == 0) return;
  const std::int64_t begin = piece.begin + first;
  if (piece.transposed)
    transpose(width, stored.data() + begin * width, piece.outputs, out.data(), piece.columns, rows,
              piece.columns);
  else
    std::memcpy(out.data(), stored.data() + begin * row, out.size());
}

void put_transposed(std::span<const Piece> pieces, std::span<const ByteSpan> params,
                    std::size_t width, std::int64_t first, std::span<std::byte> out) {
  LS_CHECK(!pieces.empty() && pieces.size() == params.size());
  const std::int64_t outputs = pieces[0].outputs;
  const std::size_t row = outputs * width;
  const auto rows = static_cast<std::int64_t>(out.size() / row);
  LS_CHECK(out.size() % row == 0 && first >= 0 && first + rows <= pieces[0].columns);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    LS_CHECK(piece.transposed && params[i].size() == piece.numel() * width);
    transpose(width, params[i].data() + first * width, piece.columns,
              out.data() + piece.begin * width, outputs, rows, piece.rows);
  }
}

Error not_finite(const std::string& tensor, std::int64_t element, DType type) {
  return {
      Code::kBadHfWeights,
      join_parts("tensor `", tensor, "`: element ", element, " is not finite in ", to_text(type)),
      "take weights from before they diverged"};
}

std::optional<HfParams> HfParams::find(const model::Model& model, const Weights& weights,
                                       config::Report& report) {
  const int before = report.num_errors();
  const std::string prefix = base_prefix(model);
  const std::string embedding = model.unit(0).params.front().hf.pattern;
  const bool bare = weights.find(embedding) == nullptr &&
                    weights.find(embedding.substr(prefix.size())) != nullptr;
  HfParams made;
  Misfits misfits;
  std::set<std::string, std::less<>> used;
  model::for_each_hf_tensor(model, [&](const model::HfTensor& tensor) {
    const bool strip = bare && tensor.name.starts_with(prefix);
    const auto* stored = weights.find(strip ? tensor.name.substr(prefix.size()) : tensor.name);
    const std::string wanted = files::shape_text(tensor.shape);
    if (stored == nullptr) return misfits.add(Misfits::kMissing, tensor.name + " " + wanted);
    const files::TensorInfo& info = stored->entry->info;
    used.insert(info.name);
    if (info.shape != tensor.shape)
      return misfits.add(
          Misfits::kShape,
          join_parts(place_of(*stored), " is ", files::shape_text(info.shape), ", not ", wanted));
    const std::optional<DType> type = files::dtype_of(info.type);
    if (!type || !is_weight_type(*type))
      return misfits.add(Misfits::kType,
                         join_parts(place_of(*stored), " is ", files::to_text(info.type)));
    for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
      const model::Param& param = *tensor.pieces[i].param;
      made.places_.push_back({model::name_at(param.name, tensor.layer), param.shape, stored, *type,
                              piece_of(tensor, i)});
    }
  });
  const auto* const tied_to = weights.find(bare ? embedding.substr(prefix.size()) : embedding);
  for (const auto& [name, stored] : weights.all()) {
    if (used.contains(name)) continue;
    if (name == "lm_head.weight" && model.config.tied && tied_to != nullptr) {
      if (!same_bytes(*stored.entry, *tied_to->entry))
        misfits.add(Misfits::kUntied, place_of(stored));
    } else if (!is_constant_table(name)) {
      misfits.add(Misfits::kLeftOver,
                  place_of(stored) + " " + files::shape_text(stored.entry->info.shape));
      continue;
    }
    made.passed_over_.push_back(name);
  }
  misfits.tell(weights.folder(), report);
  if (report.num_errors() > before) return std::nullopt;
  return made;
}

void HfParams::read(const Place& place, std::int64_t first, std::span<std::byte> out) {
  take_rows(place.piece, place.stored->entry->bytes, size_of(place.type), first, out);
}

}  // namespace lockstep::hf
