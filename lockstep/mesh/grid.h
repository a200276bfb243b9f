// Where a place in the mesh lives: the bijection between ranks and positions.
//
// A position numbers the places without regard to the placement order: tp fastest, then cp, dp
// shard, dp replicate, pp. Both views are plain mixed-radix readings of the position, which is what
// lets a group be a base and a few strides in either view; only the last hop, position to rank,
// knows the order.
#pragma once

#include <array>
#include <cstdint>

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

// Immutable; any thread may use it.
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

}  // namespace lockstep::mesh
