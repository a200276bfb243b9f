#include "lockstep/checkpoint/slice.h"

#include <algorithm>
#include <iterator>

#include "lockstep/base/check.h"
#include "lockstep/base/enum_names.h"

namespace lockstep::checkpoint {
namespace {

// A tied weight has one name: that of the embedding's table, which is the first of its unit's
// buffer.
std::string global_name(const model::Model& model, int unit, const model::Param& param) {
  if (!param.tied) return model::name_at(param.name, model::Model::layer(unit));
  const model::Unit& embed = model.unit(0);
  const auto table = std::ranges::find(embed.params, param.shape, &model::Param::shape);
  LS_CHECK(table != embed.params.end(), param.name, " is tied to nothing");
  return model::name_at(table->name, model::Model::layer(0));
}

constexpr EnumNames<Role, 3> kSliceRoles = {{"weight", "first_moment", "second_moment"}};

std::vector<std::int64_t> strides_of(const Box& box) {
  std::vector<std::int64_t> strides(box.extent.size(), 1);
  for (std::size_t d = strides.size(); d-- > 1;) strides[d - 1] = strides[d] * box.extent[d];
  return strides;
}

// Walks over what two slices share, row by row.
class Meeting {
 public:
  Meeting(const Slice& from, const Slice& to)
      : from_(from),
        to_(to),
        from_strides_(strides_of(from.box)),
        to_strides_(strides_of(to.box)) {}

  std::vector<Run> runs() {
    const std::size_t dims = from_.box.extent.size();
    for (std::size_t dim = 0; dim < dims; ++dim) {
      begin_.push_back(std::max(from_.box.begin[dim], to_.box.begin[dim]));
      end_.push_back(std::min(from_.box.begin[dim] + from_.box.extent[dim],
                              to_.box.begin[dim] + to_.box.extent[dim]));
    }
    if (dims > 1) {
      narrow(from_, from_strides_);
      narrow(to_, to_strides_);
    }
    for (std::size_t dim = 0; dim < dims; ++dim)
      if (begin_[dim] >= end_[dim]) return {};
    // Dims that both hold whole lie together in both.
    std::size_t row_dim = dims == 0 ? 0 : dims - 1;
    while (row_dim > 0 && is_whole(row_dim)) --row_dim;
    std::int64_t row = 1;
    for (std::size_t dim = row_dim; dim < dims; ++dim) row *= end_[dim] - begin_[dim];
    walk(0, row_dim, row, 0, 0);
    return std::move(runs_);
  }

 private:
  // Leaves out rows of the first dim that the range does not reach.
  void narrow(const Slice& slice, const std::vector<std::int64_t>& strides) {
    if (strides[0] == 0 || slice.size() == 0) return;
    begin_[0] = std::max(begin_[0], slice.box.begin[0] + slice.begin / strides[0]);
    end_[0] = std::min(end_[0], slice.box.begin[0] + (slice.end + strides[0] - 1) / strides[0]);
  }

  bool is_whole(std::size_t dim) const {
    const std::int64_t length = end_[dim] - begin_[dim];
    return length == from_.box.extent[dim] && length == to_.box.extent[dim];
  }

  void walk(std::size_t dim, std::size_t row_dim, std::int64_t row, std::int64_t from,
            std::int64_t to) {
    if (dim == row_dim) {
      if (!begin_.empty()) {
        from += (begin_[dim] - from_.box.begin[dim]) * from_strides_[dim];
        to += (begin_[dim] - to_.box.begin[dim]) * to_strides_[dim];
      }
      return add(from, to, row);
    }
    for (std::int64_t i = begin_[dim]; i < end_[dim]; ++i)
      walk(dim + 1, row_dim, row, from + (i - from_.box.begin[dim]) * from_strides_[dim],
           to + (i - to_.box.begin[dim]) * to_strides_[dim]);
  }

  void add(std::int64_t from, std::int64_t to, std::int64_t length) {
    const std::int64_t skip = std::max({std::int64_t{0}, from_.begin - from, to_.begin - to});
    const std::int64_t stop = std::min({length, from_.end - from, to_.end - to});
    if (skip >= stop) return;
    const Run run = {from + skip - from_.begin, to + skip - to_.begin, stop - skip};
    if (!runs_.empty() && runs_.back().source + runs_.back().length == run.source &&
        runs_.back().target + runs_.back().length == run.target)
      runs_.back().length += run.length;
    else
      runs_.push_back(run);
  }

  const Slice& from_;
  const Slice& to_;
  const std::vector<std::int64_t> from_strides_, to_strides_;
  std::vector<std::int64_t> begin_, end_;  // of what boxes share
  std::vector<Run> runs_;
};

}  // namespace

std::string_view to_text(Role role) { return kSliceRoles.name_of(role); }
std::optional<Role> parse_role(std::string_view text) { return kSliceRoles.find(text); }

std::int64_t Box::volume() const {
  std::int64_t volume = 1;
  for (const std::int64_t length : extent) volume *= length;
  return volume;
}

Box whole(const std::vector<std::int64_t>& shape) {
  return {std::vector<std::int64_t>(shape.size(), 0), shape};
}

std::string entry_name(const Slice& slice) {
  if (slice.role == Role::kWeight) return slice.tensor;
  return slice.tensor + ":" + std::string(to_text(slice.role));
}

std::vector<Run> common_runs(const Slice& from, const Slice& to) {
  LS_CHECK(from.tensor == to.tensor && from.shape == to.shape, from.tensor, " and ", to.tensor);
  return Meeting(from, to).runs();
}

std::vector<UnitSlice> unit_slices(const model::Model& model, int segment,
                                   const model::FlatLayout& layout, model::TensorPlace place,
                                   model::FlatRange range, Role role) {
  std::vector<UnitSlice> slices;
  for (const model::FlatParam& flat : layout.params) {
    const model::Param& param = model.unit(segment).params[flat.param];
    Box box = whole(param.shape);
    const model::TensorShard shard = model::tensor_shard(param, place);
    box.begin[shard.dim] = shard.begin;
    box.extent[shard.dim] = shard.length;
    if (param.experts > 0) {
      box.extent[0] = param.experts / place.ep;
      box.begin[0] = place.expert_coord * box.extent[0];
    }
    const model::FlatRange part = model::common(range, {flat.offset, flat.offset + box.volume()});
    if (part.size() <= 0) continue;
    slices.push_back({{global_name(model, model.unit_of(segment), param), role, param.shape,
                       std::move(box), part.begin - flat.offset, part.end - flat.offset},
                      part.begin,
                      param.tied || shard.is_copy});
  }
  return slices;
}

std::vector<Slice> model_slices(const model::Model& model, Role role) {
  const auto layouts = model::flat_layouts(model);
  std::vector<Slice> slices;
  for (const int segment : model.segments()) {
    const model::FlatLayout& layout = layouts[model.layout_of(segment)];
    for (UnitSlice& part : unit_slices(model, segment, layout, {}, {0, layout.size}, role))
      if (!part.is_copy) slices.push_back(std::move(part.slice));
  }
  if (role == Role::kWeight) std::ranges::move(untrained_slices(model), std::back_inserter(slices));
  return slices;
}

std::vector<Slice> untrained_slices(const model::Model& model) {
  std::vector<Slice> slices;
  for (int unit = 0; unit < model.num_units(); ++unit)
    for (const model::Param& param : model.unit(unit).params)
      if (!param.trained)
        slices.push_back({global_name(model, unit, param), Role::kWeight, param.shape,
                          whole(param.shape), 0, param.numel()});
  return slices;
}

}  // namespace lockstep::checkpoint
