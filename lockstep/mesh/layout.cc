#include "lockstep/mesh/layout.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/mesh/divisors.h"

namespace lockstep::mesh {
namespace {

Error bad_sharding(std::string message, std::string help) {
  return {Code::kBadSharding, std::move(message), std::move(help)};
}

Error does_not_divide(const LayoutSpec& spec, const DimCut& cut, std::int32_t degree) {
  const bool zigzag = cut.kind == CutKind::kZigzag;
  const std::int64_t size = spec.shape[static_cast<std::size_t>(cut.dim)];
  const std::string axes = to_text(cut.axes);
  Error error{Code::kDoesNotDivide,
              "dim " + std::to_string(cut.dim) + " of shape " + shape_text(spec.shape) +
                  " is not divisible by " + (zigzag ? "2 x " : "") + axes + " = " +
                  (zigzag ? "2 x " : "") + std::to_string(degree),
              {}};
  if (zigzag && size % 2 != 0)
    error.help = "a zigzag cut needs an even size";
  else
    error.help = "the nearest values of " + axes +
                 " that fit: " + to_text(nearest_divisors(zigzag ? size / 2 : size, degree));
  return error;
}

}  // namespace

std::int32_t DimSplit::owner_of(std::int64_t index) const {
  const std::int64_t coord = index < degree ? index : 2 * std::int64_t{degree} - 1 - index;
  return static_cast<std::int32_t>(coord);
}

std::int64_t DimSplit::local_begin_of(std::int64_t index) const {
  return index < degree ? 0 : piece;
}

std::int64_t DimSplit::piece_of(std::int32_t coord, std::int64_t nth) const {
  return nth == 0 ? coord : 2 * std::int64_t{degree} - 1 - coord;
}

Result<Layout> Layout::create(const Mesh& mesh, LayoutSpec spec) {
  Layout layout(mesh, std::move(spec));
  if (const auto checked = layout.check_axes(); !checked.ok()) return checked.error();
  if (const auto split = layout.split_dims(); !split.ok()) return split.error();
  if (const auto fitted = layout.fit_range(); !fitted.ok()) return fitted.error();
  return layout;
}

Result<void> Layout::check_axes() const {
  AxisSet used;
  if (spec_.pp) {
    const std::int32_t degree = mesh_.degree(Axis::kPipeline);
    if (spec_.pp->value < 0 || spec_.pp->value >= degree)
      return bad_sharding("pp coordinate " + std::to_string(spec_.pp->value) +
                              " is not below pp = " + std::to_string(degree),
                          "coordinates run from 0 to " + std::to_string(degree - 1));
    used = Axis::kPipeline;
  }
  std::vector<AxisSet> sets;
  for (const DimCut& cut : spec_.cuts) sets.push_back(cut.axes);
  if (spec_.range) sets.push_back(spec_.range->axes);
  for (AxisSet axes : sets) {
    if (const AxisSet twice = used & axes; !twice.empty())
      return bad_sharding("axis " + to_text(twice) + " cuts the tensor twice",
                          "an axis may cut one dim, or the range, or choose the pp coordinate");
    used = used | axes;
  }
  if (!is_one_view(used))
    return bad_sharding("axes " + to_text(used) + " mix the dense and the expert view",
                        "cut a dense tensor by tp, cp, pp and dp, an expert's by etp, ep, pp and "
                        "edp");
  return {};
}

Result<void> Layout::split_dims() {
  std::int64_t elements = 1;
  for (std::size_t dim = 0; dim < spec_.shape.size(); ++dim) {
    const std::int64_t size = spec_.shape[dim];
    const auto product = checked_product(elements, size);
    if (size < 1 || !product)
      return bad_sharding("dim " + std::to_string(dim) + " of shape " + shape_text(spec_.shape) +
                              (size < 1 ? " is less than 1" : " makes more than 2^63 elements"),
                          {});
    elements = *product;
    splits_.push_back({.piece = size});
  }
  for (const DimCut& cut : spec_.cuts) {
    if (cut.dim < 0 || static_cast<std::size_t>(cut.dim) >= splits_.size())
      return bad_sharding(
          "shape " + shape_text(spec_.shape) + " has no dim " + std::to_string(cut.dim), {});
    DimSplit& split = splits_[static_cast<std::size_t>(cut.dim)];
    if (!split.axes.empty())
      return bad_sharding("dim " + std::to_string(cut.dim) + " is cut twice, by " +
                              to_text(split.axes) + " and by " + to_text(cut.axes),
                          "cut it once, by " + to_text(split.axes | cut.axes));
    const std::int32_t degree = mesh_.degree(cut.axes);
    const std::int64_t pieces = std::int64_t{degree} * (cut.kind == CutKind::kZigzag ? 2 : 1);
    if (split.piece % pieces != 0) return does_not_divide(spec_, cut, degree);
    split = {cut.axes, cut.kind, degree, split.piece / pieces};
  }
  for (const DimSplit& split : splits_) {
    local_shape_.push_back(split.piece * split.pieces_per_coord());
    local_elements_ *= local_shape_.back();
  }
  return {};
}

Result<void> Layout::fit_range() {
  if (!spec_.range) return {};
  const auto& [axes, width, offset] = *spec_.range;
  for (const DimCut& cut : spec_.cuts)
    if (cut.kind == CutKind::kZigzag)
      return bad_sharding("a range over " + to_text(axes) + " lies below a zigzag cut of dim " +
                              std::to_string(cut.dim),
                          "cut the dim in blocks, or leave the range out");
  std::int64_t needed = 0;
  if (offset < 0 || __builtin_add_overflow(offset, local_elements_, &needed))
    return bad_sharding("range offset = " + std::to_string(offset) + " is out of range",
                        "an offset is at least 0 and the buffer below 2^63 elements");
  const std::int64_t degree = mesh_.degree(axes);
  const std::int64_t least = (needed - 1) / degree + 1;
  range_width_ = width.value_or(least);
  if (range_width_ < least)
    return bad_sharding("range width = " + std::to_string(range_width_) + " over " + to_text(axes) +
                            " = " + std::to_string(degree) + " does not cover a buffer of " +
                            std::to_string(needed) + " elements",
                        "the least width that does: " + std::to_string(least));
  if (!checked_product(range_width_, degree + 1))
    return bad_sharding("range width = " + std::to_string(range_width_) + " over " + to_text(axes) +
                            " = " + std::to_string(degree) + " makes more than 2^63 elements",
                        "the least width that covers the buffer: " + std::to_string(least));
  return {};
}

AxisSet Layout::replica_axes() const {
  AxisSet cut;
  for (const DimSplit& split : splits_) cut = cut | split.axes;
  if (spec_.range) cut = cut | spec_.range->axes;
  if (spec_.pp) cut = cut | Axis::kPipeline;
  return (kWorld.covers(cut) ? kWorld : kExpertWorld) - cut;
}

Shard Layout::shard(Rank rank) const {
  LS_CHECK(0 <= rank.value && rank.value < mesh_.world(), "rank ", rank.value, " of ",
           mesh_.world());
  Shard shard;
  if (spec_.pp && mesh_.coord(rank, Axis::kPipeline) != *spec_.pp) return shard;
  shard.boxes.emplace_back();
  for (const DimSplit& split : splits_) {
    const std::int32_t coord = mesh_.coord(rank, split.axes).value;
    std::vector<Box> grown;
    for (const Box& box : shard.boxes) {
      for (std::int64_t nth = 0; nth < split.pieces_per_coord(); ++nth) {
        const std::int64_t piece = split.piece_of(coord, nth);
        Box& next = grown.emplace_back(box);
        next.begin.push_back(piece * split.piece);
        next.extent.push_back(split.piece);
        next.local_begin.push_back(split.local_begin_of(piece));
      }
    }
    shard.boxes = std::move(grown);
  }
  shard.end = local_elements_;
  if (spec_.range) {
    const std::int64_t first =
        mesh_.coord(rank, spec_.range->axes).value * range_width_ - spec_.range->offset;
    shard.begin = std::clamp<std::int64_t>(first, 0, local_elements_);
    shard.end = std::clamp<std::int64_t>(first + range_width_, 0, local_elements_);
  }
  return shard;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text.append(i == 0 ? "" : ", ").append(std::to_string(shape[i]));
  return text + "]";
}

}  // namespace lockstep::mesh
