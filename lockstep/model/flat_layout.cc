#include "lockstep/model/flat_layout.h"

#include <algorithm>
#include <span>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::model {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Whether one matrix product serves both, or one addition after it: query, key and value; gate and
// up. They read the same input and tensor parallelism cuts their outputs.
bool continues(const Param& before, const Param& param) {
  const auto is_column = [](const Param& p) {
    return p.role != Role::kNorm && !p.sharded.empty() && p.sharded[0].dim == 0;
  };
  const auto columns = [](const Param& p) { return p.shape.size() == 2 ? p.shape[1] : 1; };
  return is_column(before) && is_column(param) && before.role == param.role &&
         before.shape.size() == param.shape.size() && param.shape.size() <= 2 &&
         columns(before) == columns(param);
}

enum class Held : std::uint8_t { kCut, kReplicated, kOverHeads };

Held held(const Param& param) {
  if (!param.sharded.empty()) return Held::kCut;
  return param.over_heads ? Held::kOverHeads : Held::kReplicated;
}

// How many pieces the ranks that share experts have of it.
std::int64_t expert_pieces(const Param& param, std::int64_t ep) {
  if (param.experts == 0) return 1;
  LS_CHECK(param.experts % ep == 0, param.name, ": ", ep, " ranks that share ", param.experts);
  return ep;
}

std::int64_t numel_of(const Param& param, const TensorPlace& place) {
  const TensorShard shard = tensor_shard(param, place);
  return param.numel() / expert_pieces(param, place.ep) / param.shape[shard.dim] *
         (shard.length + shard.padding);
}

class Writer {
 public:
  // At any coordinates of `place`.
  Writer(const Unit& unit, const TensorPlace& place, bool experts)
      : unit_(unit), place_(place), experts_(experts) {}

  FlatLayout run() {
    append(true, Held::kCut);
    const std::int64_t replicated = flat_.size;
    append(true, Held::kReplicated);
    flat_.decay_end = flat_.size;
    append(false, Held::kReplicated);
    const std::int64_t over_heads = flat_.size;
    append(false, Held::kOverHeads);
    flat_.replicated = since(replicated);
    flat_.over_heads = since(over_heads);
    append(false, Held::kCut);
    note_copies();
    LS_CHECK(flat_.params.size() == trained(), "a gain of all heads that decays has no place");
    return std::move(flat_);
  }

 private:
  // From `begin` to the end of what was written last.
  FlatRange since(std::int64_t begin) const {
    return {begin, flat_.size > begin ? flat_.params.back().end() : begin};
  }
  void note_copies() {
    for (const FlatParam& at : flat_.params) {
      const std::int64_t n = copies(unit_.params[at.param], place_.tp);
      if (n == 1) continue;
      flat_.copies = n;
      if (!flat_.copied.empty() && flat_.copied.back().end == at.offset)
        flat_.copied.back().end = at.end();
      else
        flat_.copied.push_back({at.offset, at.end()});
    }
  }
  std::size_t trained() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(unit_.params, [&](const Param& param) { return has(param); }));
  }
  bool has(const Param& param) const { return param.trained && (param.experts > 0) == experts_; }

  void append(bool decays, Held wanted) {
    const Param* before = nullptr;  // of the same kind, in the order of the unit
    for (int i = 0; i < static_cast<int>(unit_.params.size()); ++i) {
      const Param& param = unit_.params[i];
      if (!has(param) || param.decays != decays) continue;
      const Param* neighbour = std::exchange(before, &param);
      if (held(param) != wanted) continue;
      const bool joined = neighbour != nullptr && continues(*neighbour, param);
      const std::int64_t offset = joined ? flat_.params.back().end() : flat_.size;
      flat_.params.push_back({i, offset, numel_of(param, place_)});
      flat_.size = round_up(flat_.params.back().end(), kFlatAlign);
    }
  }

  const Unit& unit_;
  const TensorPlace place_;
  const bool experts_;
  FlatLayout flat_;
};

// Moves everything but the first parameter. REQUIRES: a multiple of kFlatAlign.
void shift_tail(FlatLayout& flat, std::int64_t by) {
  for (FlatParam& param : std::span(flat.params).subspan(1)) param.offset += by;
  for (FlatRange* range : {&flat.replicated, &flat.over_heads}) {
    range->begin += by;
    range->end += by;
  }
  flat.size += by;
}

void tie(const Unit& embed, FlatLayout& first, const Unit& head, FlatLayout& second) {
  const auto copy = std::ranges::find_if(head.params, &Param::tied);
  const FlatParam& at = second.of(static_cast<int>(copy - head.params.begin()));
  LS_CHECK(at.offset == 0 && first.params.front().offset == 0 &&
               embed.params[first.params.front().param].shape == copy->shape,
           "a tied weight must be the first of its unit");
  first.tied = second.tied = {0, at.numel};
  second.tied_copy = true;
  if (second.params.size() > 1) shift_tail(second, first.size - second.params[1].offset);
  first.size = second.size = std::max(first.size, second.size);
}

// Row-major, whatever dim is cut: `row` elements of the piece lie together in every `whole_row` of
// the parameter, the first `skip` elements into it. Experts of other ranks are the first `before`
// elements.
void add_runs(const Param& param, const FlatParam& place, const TensorPlace& rank, FlatRange range,
              std::vector<FlatRun>& runs) {
  const TensorShard shard = tensor_shard(param, rank);
  const std::int64_t before =
      param.numel() / expert_pieces(param, rank.ep) * (param.experts > 0 ? rank.expert_coord : 0);
  std::int64_t inner = 1;
  for (std::size_t dim = static_cast<std::size_t>(shard.dim) + 1; dim < param.shape.size(); ++dim)
    inner *= param.shape[dim];
  const std::int64_t row = shard.length * inner, skip = shard.begin * inner;
  const std::int64_t whole_row = param.shape[shard.dim] * inner;
  const FlatRange part = common(range, {place.offset, place.end() - shard.padding * inner});
  for (std::int64_t at = part.begin; at < part.end;) {
    const std::int64_t within = at - place.offset;
    const std::int64_t length = std::min(row - within % row, part.end - at);
    runs.push_back(
        {place.param, at, before + within / row * whole_row + skip + within % row, length});
    at += length;
  }
}

}  // namespace

FlatRange common(const FlatRange& a, const FlatRange& b) {
  const std::int64_t begin = std::clamp(b.begin, a.begin, a.end);
  return {begin, std::clamp(b.end, begin, a.end)};
}

std::int64_t FlatLayout::padded(std::int64_t shards) const {
  return round_up(size, kTile * shards);
}

FlatRange FlatLayout::shard(std::int64_t shards, std::int64_t index) const {
  const std::int64_t width = padded(shards) / shards;
  return {index * width, (index + 1) * width};
}

bool FlatLayout::holds(int param) const {
  return std::ranges::find(params, param, &FlatParam::param) != params.end();
}

const FlatParam& FlatLayout::of(int param) const {
  const auto found = std::ranges::find(params, param, &FlatParam::param);
  LS_CHECK(found != params.end(), "parameter ", param, " is not in the flat buffer");
  return *found;
}

std::vector<FlatRange> FlatLayout::gaps(std::int64_t shards) const {
  std::vector<FlatRange> gaps;
  std::int64_t at = 0;
  const auto add = [&](std::int64_t next) {
    if (next > at) gaps.push_back({at, next});
  };
  for (const FlatParam& param : params) {
    add(param.offset);
    at = param.end();
  }
  add(padded(shards));
  return gaps;
}

namespace {

const ShardedDim* tensor_cut(const Param& param) {
  const auto cut = std::ranges::find_if(param.sharded, [](const ShardedDim& dim) {
    return dim.axis == mesh::Axis::kTensor || dim.axis == mesh::Axis::kExpertTensor;
  });
  return cut == param.sharded.end() ? nullptr : &*cut;
}

}  // namespace

std::int64_t copies(const Param& param, std::int64_t tp) {
  const ShardedDim* cut = tensor_cut(param);
  const std::int64_t grains = cut == nullptr ? tp : param.shape[cut->dim] / cut->grain;
  return cut == nullptr || cut->grain == 1 || grains >= tp ? 1 : tp / grains;
}

std::int64_t copies(const Model& model, std::int64_t tp) {
  std::int64_t most = 1;
  for (const Unit& unit : model.distinct)
    for (const Param& param : unit.params) most = std::max(most, copies(param, tp));
  return most;
}

TensorShard tensor_shard(const Param& param, std::int64_t tp, std::int64_t coord) {
  LS_CHECK(coord >= 0 && coord < tp, param.name, ": rank ", coord, " of ", tp);
  const ShardedDim* cut = tensor_cut(param);
  if (cut == nullptr) return {0, 0, param.shape[0], 0, coord > 0};
  const std::int64_t alike = copies(param, tp), ranks = tp / alike;
  const std::int64_t length = param.shape[cut->dim], pieces = ranks * cut->grain;
  LS_CHECK((cut->padded ? cut->dim == 0 : length % pieces == 0) && tp % alike == 0, param.name,
           ": ", tp, " ranks that share ", length, " in pieces of ", cut->grain);
  const std::int64_t each = round_up(length, pieces) / ranks;
  const std::int64_t begin = std::min(each * (coord / alike), length);
  const std::int64_t own = std::min(each, length - begin);
  return {cut->dim, begin, own, each - own, coord % alike != 0};
}

TensorShard tensor_shard(const Param& param, const TensorPlace& place) {
  if (param.experts == 0) return tensor_shard(param, place.tp, place.coord);
  LS_CHECK(place.tp % place.etp == 0, "experts on ", place.etp, " of ", place.tp, " tensor ranks");
  return tensor_shard(param, place.etp, place.coord % place.etp);
}

std::vector<FlatLayout> flat_layouts(const Model& model, std::int64_t tp, std::int64_t ep,
                                     std::optional<std::int64_t> etp) {
  const TensorPlace place = {.tp = tp, .ep = ep, .etp = etp.value_or(tp)};
  std::vector<FlatLayout> layouts;
  for (const Unit& unit : model.distinct) layouts.push_back(Writer(unit, place, false).run());
  if (std::ranges::any_of(model.distinct, &Unit::has_experts))
    for (const Unit& unit : model.distinct) layouts.push_back(Writer(unit, place, true).run());
  const int embed = model.order.front(), head = model.order.back();
  if (std::ranges::any_of(model.distinct[head].params, &Param::tied))
    tie(model.distinct[embed], layouts[embed], model.distinct[head], layouts[head]);
  return layouts;
}

std::vector<FlatRun> flat_runs(const Unit& unit, const FlatLayout& layout, TensorPlace place,
                               FlatRange range) {
  std::vector<FlatRun> runs;
  for (const FlatParam& param : layout.params) {
    add_runs(unit.params[param.param], param, place, range, runs);
  }
  return runs;
}

}  // namespace lockstep::model
