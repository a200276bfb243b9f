// Which elements a rank holds, asked element by element, and random layouts to ask about. Shares
// nothing with the library but the coordinates of a rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "lockstep/mesh/layout.h"
#include "tests/mesh/random_mesh.h"

namespace lockstep::mesh {

// Row-major numbers of the global elements that `rank` holds, in the order of its memory.
inline std::vector<std::int64_t> naive_shard(const Layout& layout, Rank rank) {
  const LayoutSpec& spec = layout.spec();
  const Mesh& mesh = layout.mesh();
  if (spec.pp && mesh.coords(rank)[Axis::kPipeline] != *spec.pp) return {};
  std::vector<std::int64_t> ids = {0};
  for (std::size_t dim = 0; dim < spec.shape.size(); ++dim) {
    const std::int64_t size = spec.shape[dim];
    std::vector<std::int64_t> grown;
    for (std::int64_t id : ids) {
      for (std::int64_t i = 0; i < size; ++i) {
        bool mine = true;
        for (const DimCut& cut : spec.cuts) {
          if (static_cast<std::size_t>(cut.dim) != dim) continue;
          const std::int64_t n = mesh.degree(cut.axes);
          const std::int64_t folded = i < size / 2 ? i : size - 1 - i;
          const std::int64_t owner =
              cut.kind == CutKind::kBlock ? i * n / size : folded * 2 * n / size;
          mine = mine && owner == mesh.coord(rank, cut.axes).value;
        }
        if (mine) grown.push_back(id * size + i);
      }
    }
    ids = std::move(grown);
  }
  if (!spec.range) return ids;
  std::int64_t width = spec.range->width.value_or(0);
  const std::int64_t n = mesh.degree(spec.range->axes);
  if (width == 0)
    while (width * n < spec.range->offset + static_cast<std::int64_t>(ids.size())) ++width;
  std::vector<std::int64_t> kept;
  for (std::size_t k = 0; k < ids.size(); ++k)
    if ((static_cast<std::int64_t>(k) + spec.range->offset) / width ==
        mesh.coord(rank, spec.range->axes).value)
      kept.push_back(ids[k]);
  return kept;
}

// A random assignment of a mesh's axes: to a dim, to the range, to nothing. The shape is open.
inline LayoutSpec random_cuts(Dice& dice, const Mesh& mesh, std::int32_t num_dims) {
  LayoutSpec spec;
  std::vector<AxisSet> by_dim(static_cast<std::size_t>(num_dims));
  AxisSet range;
  for (Axis axis : dice.coin() ? kDenseView : kExpertView) {
    const std::int64_t use = dice.between(-2, num_dims - 1);
    if (use >= 0)
      by_dim[static_cast<std::size_t>(use)] = by_dim[static_cast<std::size_t>(use)] | axis;
    else if (axis == Axis::kPipeline && dice.coin())
      spec.pp = Coord{static_cast<std::int32_t>(dice.between(0, mesh.degree(axis) - 1))};
    else if (use == -1)
      range = range | axis;
  }
  const bool zigzag = dice.coin();
  for (std::int32_t dim = 0; dim < num_dims; ++dim) {
    const AxisSet axes = by_dim[static_cast<std::size_t>(dim)];
    if (axes.empty()) continue;
    spec.cuts.push_back({dim, axes, zigzag && dice.coin() ? CutKind::kZigzag : CutKind::kBlock});
  }
  if (!zigzag && !range.empty()) spec.range = RangeCut{.axes = range};
  return spec;
}

// How many equal pieces the spec cuts a dim into.
inline std::int64_t pieces(const LayoutSpec& spec, const Mesh& mesh, std::int32_t dim) {
  for (const DimCut& cut : spec.cuts)
    if (cut.dim == dim)
      return std::int64_t{mesh.degree(cut.axes)} * (cut.kind == CutKind::kZigzag ? 2 : 1);
  return 1;
}

// Sometimes gives the range a place in a larger, padded buffer.
inline void randomize_range(Dice& dice, const Mesh& mesh, LayoutSpec& spec) {
  if (!spec.range || dice.coin()) return;
  std::int64_t box = 1;
  for (std::size_t dim = 0; dim < spec.shape.size(); ++dim)
    box *= spec.shape[dim] / pieces(spec, mesh, static_cast<std::int32_t>(dim));
  spec.range->offset = dice.between(0, 2 * box);
  const std::int64_t n = mesh.degree(spec.range->axes);
  spec.range->width = (spec.range->offset + box + n - 1) / n + dice.between(0, box);
}

// Two random layouts of one random global shape, on meshes that need not be alike.
inline std::pair<Layout, Layout> random_layouts(Dice& dice) {
  while (true) {
    const Mesh meshes[] = {random_mesh(dice, 48), random_mesh(dice, 48)};
    const auto num_dims = static_cast<std::int32_t>(dice.between(0, 3));
    LayoutSpec specs[] = {random_cuts(dice, meshes[0], num_dims),
                          random_cuts(dice, meshes[1], num_dims)};
    std::vector<std::int64_t> shape;
    for (std::int32_t dim = 0; dim < num_dims; ++dim)
      shape.push_back(dice.between(1, 3) *
                      std::lcm(pieces(specs[0], meshes[0], dim), pieces(specs[1], meshes[1], dim)));
    if (std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()) > 5000)
      continue;
    for (int i : {0, 1}) {
      specs[i].shape = shape;
      randomize_range(dice, meshes[i], specs[i]);
    }
    return {Layout::create(meshes[0], specs[0]).value(),
            Layout::create(meshes[1], specs[1]).value()};
  }
}

}  // namespace lockstep::mesh
