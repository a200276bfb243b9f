// A group: the ranks that share all coordinates but those along a set of axes.
//
// It is kept as a base and strides, never as a list, so making one costs the same on 8 ranks and
// on a million. Members are counted with the axes in member order (axis.h), earlier axis faster.
// So the replicate axis is always slowest, and a shard group is an aligned block of consecutive
// members of its data group: an aligned binary tree adds alike under flat and hybrid sharding.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/ids.h"
#include "lockstep/mesh/axis.h"

namespace lockstep::mesh {

// One digit of a mixed-radix number: value = (number / step) % extent.
struct Digit {
  Axis axis = Axis::kTensor;
  std::int32_t extent = 1;
  std::int32_t step = 1;

  std::int32_t of(std::int32_t number) const { return number / step % extent; }
  bool operator==(const Digit&) const = default;
};

// Five digits of a position, in member order (the order of kDenseView or kExpertView).
using View = std::array<Digit, 5>;

// Where a place in the mesh lives: the bijection between ranks and positions.
//
// A position numbers the places without regard to the placement order: tp fastest, then cp, dp
// shard, dp replicate, pp. Both views are plain mixed-radix readings of the position, which is what
// lets a group be a base and a few strides in either view; only the last hop, position to rank,
// knows the order. Immutable; any thread may use it.
class Grid {
 public:
  Grid() = default;
  // `dense` are the digits of a position. REQUIRES: the product of the extents fits std::int32_t.
  Grid(const View& dense, const Order& order);

  bool has(Rank rank) const { return 0 <= rank.value && rank.value < world_; }
  // REQUIRES: has(rank).
  std::int32_t position(Rank rank) const;
  // REQUIRES: 0 <= position < number of ranks.
  Rank rank(std::int32_t position) const;
  bool operator==(const Grid&) const = default;

 private:
  std::int32_t world_ = 1;
  View of_position_ = {};
  std::array<std::int32_t, 5> rank_step_ = {1, 1, 1, 1, 1};  // beside of_position_
};

// A value of about 150 bytes that owns no memory and refers to no mesh. Immutable; any thread may
// use it. Equal when made from any two of its members.
class Group {
 public:
  // The group of one rank of a world of one.
  Group() = default;
  // Made by Mesh::group.
  Group(const Grid& grid, const View& view, AxisSet axes, Rank member);

  AxisSet axes() const { return axes_; }  // what the ledger files this group's traffic under
  std::int32_t size() const { return size_; }

  // REQUIRES: 0 <= index < size().
  Rank rank_at(std::int32_t index) const;
  // The member number of `rank`; absent when it is no member.
  std::optional<std::int32_t> index_of(Rank rank) const;
  bool contains(Rank rank) const { return index_of(rank).has_value(); }

  // "dp@tp1.pp0": the axes, then the coordinates its members share, leaving out axes of degree 1.
  // The same on every member and different for any two groups of a mesh; letters, digits and
  // "+_@." only.
  std::string name() const;

  std::vector<Rank> ranks() const;  // all members, in their order

  bool operator==(const Group&) const = default;

 private:
  Grid grid_;
  View view_ = {};
  AxisSet axes_;
  std::int32_t base_ = 0;  // position of member 0
  std::int32_t size_ = 1;
};

}  // namespace lockstep::mesh
