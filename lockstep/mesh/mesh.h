// The mesh: every rank's place along the axes, computed, never stored. All queries cost O(number of
// axes) at any number of ranks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "lockstep/base/ids.h"
#include "lockstep/base/result.h"
#include "lockstep/mesh/axis.h"
#include "lockstep/mesh/group.h"

namespace lockstep::mesh {

// What a user asks for; Mesh::create checks it. dp counts data-parallel copies of the model, cut
// into dp / dp_shard replicas of dp_shard shards each.
struct Degrees {
  std::int64_t tp = 1;
  std::int64_t cp = 1;
  std::int64_t pp = 1;
  std::int64_t dp = 1;
  std::optional<std::int64_t> dp_shard = {};  // absent: dp, that is flat sharding
  std::int64_t ep = 1;
  std::int64_t etp = 1;
  bool operator==(const Degrees&) const = default;
};

// Refuses degrees whose product is not `world`; the error names the degrees that would fit.
Result<void> check_world(const Degrees& degrees, std::int64_t world);

// A rank's coordinates along all axes of both views.
class Coords {
 public:
  Coord& operator[](Axis axis) { return coords_.at(static_cast<std::size_t>(axis)); }
  Coord operator[](Axis axis) const { return coords_.at(static_cast<std::size_t>(axis)); }
  bool operator==(const Coords&) const = default;

 private:
  std::array<Coord, kNumAxes> coords_ = {};
};

// A value of a few hundred bytes. Immutable; any thread may use it.
class Mesh {
 public:
  // A world of one rank.
  Mesh();

  // Refuses a degree below 1, more than 2^31 - 1 ranks, a dp_shard that does not divide dp, and ep
  // x etp that does not divide tp x cp x dp.
  //
  // The expert view counts the ranks of one pp coordinate with tp fastest, then cp, then dp, and
  // reads that count as etp fastest, then ep, then edp; so etp = tp gives etp groups that are tp
  // groups. edp is cut into the largest number of equal replicas that start where a dp replica
  // starts: gcd(dp / dp_shard, edp).
  static Result<Mesh> create(const Degrees& degrees, const Order& order = {});

  std::int32_t world() const { return world_; }
  const Order& order() const { return order_; }

  // Number of coordinates along the axes together. REQUIRES: axes of one view.
  std::int32_t degree(AxisSet axes) const;
  // Coordinate along the axes together, in member order. REQUIRES: axes of one view.
  Coord coord(Rank rank, AxisSet axes) const;

  // The rank at these coordinates of the dense view; the others are not read.
  Rank rank(const Coords& coords) const;

  // The group of `rank` along the axes. REQUIRES: axes of one view, 0 <= rank < world().
  Group group(Rank rank, AxisSet axes) const;

  bool operator==(const Mesh&) const = default;

 private:
  const View& view_of(AxisSet axes) const;

  Order order_;
  std::int32_t world_ = 1;
  View dense_ = {};
  View expert_ = {};
  Grid grid_;
};

}  // namespace lockstep::mesh
