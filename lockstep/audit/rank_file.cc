#include "lockstep/audit/rank_file.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"
#include "lockstep/base/mapped_file.h"

namespace lockstep::audit {
namespace {

constexpr std::size_t kMostDims = 8;

class RankReader {
 public:
  RankReader(const std::string& folder, int rank)
      : stem_(join_parts(folder, "/rank-", rank)), name_(join_parts("rank-", rank, ".json")) {
    made_.rank = rank;
  }

  Result<RankFile> read() {
    const MappedFile file = LS_TRY(MappedFile::open(stem_ + ".json"));
    const Result<Json> parsed = Json::parse(file.text());
    if (!parsed.ok()) return refuse(parsed.error().message);
    if (!parsed->is_object()) return refuse("it holds no object");
    made_.tensors = std::make_unique<files::Safetensors>(
        LS_TRY(files::Safetensors::open(stem_ + ".safetensors")));
    if (LS_TRY(integer(*parsed, "rank")) != made_.rank) return refuse("it is of another rank");
    const Shape data = LS_TRY(integers(*parsed, "data"));
    if (data.size() != 2 || data[0] < 0 || data[0] >= data[1] || data[1] > 1 << 16)
      return refuse("`data` must be a rank and how many there are");
    made_.data_rank = static_cast<int>(data[0]);
    made_.data_ranks = static_cast<int>(data[1]);
    for (const Json* piece : LS_TRY(objects(*parsed, "pieces"))) LS_TRY(add_piece(*piece));
    for (const Json* batch : LS_TRY(objects(*parsed, "batches"))) LS_TRY(add_batch(*batch));
    LS_TRY(read_said(*parsed));
    return std::move(made_);
  }

 private:
  Error refuse(const std::string& why) const { return bad_dump(join_parts(name_, ": ", why)); }

  Result<std::int64_t> integer(const Json& json, const std::string& key) const {
    const Json* const value = json.find(key);
    if (value == nullptr || !value->is_int())
      return refuse(join_parts("`", key, "` must be a whole number"));
    return value->as_int();
  }
  Result<std::string> text(const Json& json, const std::string& key) const {
    const Json* const value = json.find(key);
    if (value == nullptr || !value->is_text())
      return refuse(join_parts("`", key, "` must be text"));
    return value->as_text();
  }
  Result<Shape> integers(const Json& json, const std::string& key) const {
    const Json* const value = json.find(key);
    if (value == nullptr || !value->is_array() || value->items().size() > kMostDims ||
        !std::ranges::all_of(value->items(), &Json::is_int))
      return refuse(join_parts("`", key, "` must be at most ", kMostDims, " whole numbers"));
    Shape read;
    for (const Json& item : value->items()) read.push_back(item.as_int());
    return read;
  }
  Result<std::vector<const Json*>> objects(const Json& json, const std::string& key) const {
    const Json* const value = json.find(key);
    if (value == nullptr || !value->is_array() ||
        !std::ranges::all_of(value->items(), &Json::is_object))
      return refuse(join_parts("`", key, "` must be a list of objects"));
    std::vector<const Json*> read;
    for (const Json& item : value->items()) read.push_back(&item);
    return read;
  }
  Result<const files::TensorEntry*> tensor(const std::string& key) const {
    const files::TensorEntry* const found = made_.tensors->find(key);
    if (found == nullptr) return refuse(join_parts("there is no tensor `", key, "` beside it"));
    return found;
  }

  Result<Region> box_of(const Json& json) const {
    Region box;
    box.offset = LS_TRY(integers(json, "offset"));
    box.extent = LS_TRY(integers(json, "extent"));
    return box;
  }
  Result<Region> region_of(const Json& json) const {
    if (json.find("range") == nullptr) return box_of(json);
    const Shape range = LS_TRY(integers(json, "range"));
    if (range.size() != 2 || range[0] < 0) return refuse("`range` must be a beginning and an end");
    return Region{{}, {}, range[0], range[1]};
  }

  Result<void> add_piece(const Json& json) {
    const std::string name = LS_TRY(text(json, "tensor"));
    const std::string kind = LS_TRY(text(json, "kind"));
    if (kind != "weight" && kind != "gradient")
      return refuse(join_parts("a piece's kind is `", kind, "`, not weight or gradient"));
    Piece piece = {.rank = made_.rank, .region = LS_TRY(region_of(json))};
    piece.shape = LS_TRY(integers(json, "shape"));
    if (json.find("copy") != nullptr) piece.copy = LS_TRY(integers(json, "copy"));
    if (json.find("shares") != nullptr) piece.shares = LS_TRY(integer(json, "shares"));
    if (json.find("hash") != nullptr) piece.hash = LS_TRY(text(json, "hash"));
    if (json.find("key") != nullptr) {
      const std::string key = LS_TRY(text(json, "key"));
      const auto* const entry = LS_TRY(tensor(key));
      const auto dtype = files::dtype_of(entry->info.type);
      if (!dtype) return refuse(join_parts("`", name, "` is ", to_text(entry->info.type)));
      if (piece.region.begin < 0 && entry->info.shape != piece.region.extent)
        return refuse(join_parts("`", name, "` is ", files::shape_text(entry->info.shape),
                                 ", and its extent ", files::shape_text(piece.region.extent)));
      piece.bytes = entry->bytes;
      piece.dtype = *dtype;
    }
    made_.pieces[kind].emplace_back(name, std::move(piece));
    return {};
  }

  // [samples, tokens]; empty where it need not be there.
  Result<std::vector<std::vector<std::int64_t>>> rows(const std::string& key,
                                                      bool is_needed) const {
    if (!is_needed && made_.tensors->find(key) == nullptr)
      return std::vector<std::vector<std::int64_t>>{};
    const files::TensorEntry& entry = *LS_TRY(tensor(key));
    const Shape& shape = entry.info.shape;
    if (entry.info.type != files::ElementType::kI64 || shape.size() != 2 || shape[0] < 1 ||
        shape[1] < 1)
      return refuse(join_parts("`", key, "` must be whole numbers, I64, by sample and token"));
    std::vector<std::vector<std::int64_t>> read(shape[0], std::vector<std::int64_t>(shape[1]));
    for (std::int64_t row = 0; row < shape[0]; ++row)
      std::memcpy(read[row].data(), entry.bytes.data() + row * shape[1] * 8, shape[1] * 8);
    return read;
  }

  Result<void> add_batch(const Json& json) {
    const std::string key = LS_TRY(text(json, "key"));
    const Json* const shifted = json.find("shifted");
    if (shifted == nullptr || !shifted->is_bool()) return refuse("`shifted` must be true or false");
    const auto tokens = LS_TRY(rows(key + "/tokens", true));
    auto labels = LS_TRY(rows(key + "/labels", true));
    if (labels.size() != tokens.size() || labels[0].size() != tokens[0].size())
      return refuse(join_parts("tokens and labels of `", key, "` are of different shapes"));
    LS_TRY(check_positions(key, labels));
    const int microbatch = static_cast<int>(made_.batches.size());
    std::vector<Sample> samples;
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      if (!shifted->as_bool()) {
        labels[row].erase(labels[row].begin());
        labels[row].push_back(kIgnored);
      }
      for (std::size_t i = 0; i < tokens[row].size(); ++i)
        if (tokens[row][i] < 0 || (labels[row][i] < 0 && labels[row][i] != kIgnored))
          return refuse(
              join_parts("`", key, "` has token ", tokens[row][i], " and label ", labels[row][i]));
      samples.push_back({made_.data_rank, microbatch, tokens[row], labels[row]});
    }
    made_.batches[{made_.data_rank, microbatch}] = std::move(samples);
    return {};
  }

  // Positions count from 0, and what is masked lies behind all that counts.
  Result<void> check_positions(const std::string& key,
                               const std::vector<std::vector<std::int64_t>>& labels) const {
    for (const auto& row : LS_TRY(rows(key + "/positions", false)))
      for (std::size_t i = 0; i < row.size(); ++i)
        if (row[i] != static_cast<std::int64_t>(i))
          return bad_dump(
              join_parts(name_, ": position ", row[i], " at token ", i, " of `", key, "`"),
              "only sequences of one document are audited, whose positions are 0, 1, "
              "2, ...");
    const auto masks = LS_TRY(rows(key + "/mask", false));
    for (std::size_t row = 0; row < std::min(masks.size(), labels.size()); ++row) {
      const auto hidden = std::ranges::find(masks[row], 0);
      const auto from = hidden - masks[row].begin();
      const bool is_right =
          std::ranges::all_of(hidden, masks[row].end(), [](auto m) { return m == 0; });
      const bool counts =
          std::ranges::any_of(labels[row].begin() + std::min(from, std::ssize(labels[row])),
                              labels[row].end(), [](auto label) { return label != kIgnored; });
      if (!is_right || counts)
        return bad_dump(join_parts(name_, ": the mask of `", key, "` hides tokens before others"),
                        "pad on the right, and ignore the labels there");
    }
    return {};
  }

  Result<void> read_said(const Json& json) {
    const Json* const said = json.find("said");
    if (said == nullptr || !said->is_object()) return refuse("`said` must be an object");
    for (const auto& [key, value] : said->members()) {
      if (!value.is_number()) return refuse(join_parts("`said.", key, "` must be a number"));
      if (key == "tokens" && value.is_int())
        made_.said.tokens = value.as_int();
      else if (key == "loss_sum")
        made_.said.loss_sum = value.as_real();
      else if (key == "loss")
        made_.said.loss = value.as_real();
      else if (key == "grad_norm")
        made_.said.grad_norm = value.as_real();
      else
        return refuse(join_parts("nothing is known of `said.", key, "`"));
    }
    return {};
  }

  const std::string stem_, name_;
  RankFile made_;
};

}  // namespace

Result<RankFile> read_rank(const std::string& folder, int rank) {
  return RankReader(folder, rank).read();
}

}  // namespace lockstep::audit
