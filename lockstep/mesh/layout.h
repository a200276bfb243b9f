// How one logical tensor is cut over a mesh: which axes cut which dim, and, below that, which
// row-major range of the resulting box a rank keeps (ZeRO).
//
// A rank's local tensor is one dense row-major tensor of local_shape(). Under a zigzag cut the
// rank's two pieces lie side by side along the cut dim, in ascending global order. Under a range
// cut the rank keeps only elements [begin, end) of its local tensor, as a flat buffer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/ids.h"
#include "lockstep/base/result.h"
#include "lockstep/mesh/axis.h"
#include "lockstep/mesh/mesh.h"

namespace lockstep::mesh {

enum class CutKind : std::uint8_t {
  kBlock,   // n equal pieces, coordinate i owns piece i
  kZigzag,  // 2n equal pieces, coordinate i owns pieces i and 2n-1-i: equal work under a causal
            // mask (Llama 3 report, section 3.3.2)
};

// Several axes cut one dim as if they were one: the coordinate is the one in member order.
struct DimCut {
  std::int32_t dim = 0;
  AxisSet axes = {};
  CutKind kind = CutKind::kBlock;
  bool operator==(const DimCut&) const = default;
};

// Coordinate i owns elements [i * width, (i + 1) * width) of a flat buffer in which the box starts
// at element `offset`; what lies outside the box is padding or another tensor, and is clipped off.
struct RangeCut {
  AxisSet axes = {};
  std::optional<std::int64_t> width = {};  // elements; absent: the least that covers offset + box
  std::int64_t offset = 0;                 // elements
  bool operator==(const RangeCut&) const = default;
};

struct LayoutSpec {
  std::vector<std::int64_t> shape = {};  // global; empty for a scalar
  std::vector<DimCut> cuts = {};         // at most one per dim
  std::optional<RangeCut> range = {};
  std::optional<Coord> pp = {};  // the one pp coordinate that holds it; absent: all do
  bool operator==(const LayoutSpec&) const = default;
};

// How one dim is cut; a dim that no axis cuts is one piece of one coordinate.
struct DimSplit {
  AxisSet axes = {};
  CutKind kind = CutKind::kBlock;
  std::int32_t degree = 1;
  std::int64_t piece = 1;  // length of a piece

  std::int64_t pieces_per_coord() const { return kind == CutKind::kZigzag ? 2 : 1; }
  // Who owns piece number `index` of the global dim, and where it starts in the owner's local dim.
  std::int32_t owner_of(std::int64_t index) const;
  std::int64_t local_begin_of(std::int64_t index) const;
  // The `nth` piece of a coordinate, counted from 0, as a number of the global dim.
  std::int64_t piece_of(std::int32_t coord, std::int64_t nth) const;
};

// A rectangle of the global tensor and where it starts in the local one; one entry per dim.
struct Box {
  std::vector<std::int64_t> begin;
  std::vector<std::int64_t> extent;
  std::vector<std::int64_t> local_begin;
  bool operator==(const Box&) const = default;
};

// What one rank owns: elements [begin, end), row-major, of the local tensor made of the boxes. No
// boxes on a rank of another pipeline coordinate; begin == end where the range holds only padding.
struct Shard {
  std::vector<Box> boxes;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Shard&) const = default;
};

// Holds its own copy of the mesh. Immutable; any thread may use it.
class Layout {
 public:
  // Refuses an axis used twice or on both views, a dim cut twice, a dim its degree (zigzag: twice
  // its degree) does not divide, a range below a zigzag cut (its two boxes have no common row-major
  // order in the global tensor), and a range that does not cover the box.
  static Result<Layout> create(const Mesh& mesh, LayoutSpec spec);

  const Mesh& mesh() const { return mesh_; }
  const LayoutSpec& spec() const { return spec_; }
  std::span<const DimSplit> splits() const { return splits_; }                // one per dim
  std::span<const std::int64_t> local_shape() const { return local_shape_; }  // before the range
  std::int64_t local_elements() const { return local_elements_; }             // before the range
  std::int64_t range_width() const { return range_width_; }  // elements; 0 without a range cut

  // Axes along which ranks hold identical copies.
  AxisSet replica_axes() const;

  Shard shard(Rank rank) const;

 private:
  Layout(const Mesh& mesh, LayoutSpec spec) : mesh_(mesh), spec_(std::move(spec)) {}
  Result<void> check_axes() const;
  Result<void> split_dims();
  Result<void> fit_range();

  Mesh mesh_;
  LayoutSpec spec_;
  std::vector<DimSplit> splits_;
  std::vector<std::int64_t> local_shape_;
  std::int64_t local_elements_ = 1;
  std::int64_t range_width_ = 0;
};

std::string shape_text(std::span<const std::int64_t> shape);  // "[4096, 1024]"

}  // namespace lockstep::mesh
