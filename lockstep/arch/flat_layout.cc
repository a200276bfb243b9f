#include "lockstep/arch/flat_layout.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::arch {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Whether one matrix product serves both: query, key and value; gate and up. They read the same
// input and tensor parallelism cuts their outputs.
bool continues(const Param& before, const Param& param) {
  const auto is_column = [](const Param& p) {
    return p.shape.size() == 2 && !p.sharded.empty() && p.sharded[0].dim == 0;
  };
  return is_column(before) && is_column(param) && before.role == param.role &&
         before.shape[1] == param.shape[1];
}

const Param& last_of(const FlatLayout& flat, const Unit& unit) {
  return unit.params[static_cast<std::size_t>(flat.params.back().param)];
}

void append(FlatLayout& flat, const Unit& unit, bool decays) {
  for (int i = 0; i < static_cast<int>(unit.params.size()); ++i) {
    const Param& param = unit.params[static_cast<std::size_t>(i)];
    if (!param.trained || param.decays != decays) continue;
    const bool joined = !flat.params.empty() && continues(last_of(flat, unit), param);
    const std::int64_t offset = joined ? flat.params.back().end() : flat.size;
    flat.params.push_back({i, offset, param.numel()});
    flat.size = round_up(offset + param.numel(), kFlatAlign);
  }
}

FlatLayout lay_out(const Unit& unit) {
  FlatLayout flat;
  append(flat, unit, true);
  flat.decay_end = flat.size;
  append(flat, unit, false);
  return flat;
}

void tie(const Unit& embed, FlatLayout& first, const Unit& head, FlatLayout& second) {
  const auto copy = std::ranges::find_if(head.params, &Param::tied);
  const FlatParam& at = second.of(static_cast<int>(copy - head.params.begin()));
  LS_CHECK(
      at.offset == 0 && first.params.front().offset == 0 &&
          embed.params[static_cast<std::size_t>(first.params.front().param)].shape == copy->shape,
      "a tied weight must be the first of its unit");
  first.tied = second.tied = {0, at.numel};
  second.tied_copy = true;
  first.size = second.size = std::max(first.size, second.size);
}

}  // namespace

std::int64_t FlatLayout::padded(std::int64_t shards) const {
  return round_up(size, kTile * shards);
}

FlatRange FlatLayout::shard(std::int64_t shards, std::int64_t index) const {
  const std::int64_t width = padded(shards) / shards;
  return {index * width, (index + 1) * width};
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

std::vector<FlatLayout> flat_layouts(const Model& model) {
  std::vector<FlatLayout> layouts;
  for (const Unit& unit : model.distinct) layouts.push_back(lay_out(unit));
  const auto embed = static_cast<std::size_t>(model.order.front());
  const auto head = static_cast<std::size_t>(model.order.back());
  if (std::ranges::any_of(model.distinct[head].params, &Param::tied))
    tie(model.distinct[embed], layouts[embed], model.distinct[head], layouts[head]);
  return layouts;
}

}  // namespace lockstep::arch
