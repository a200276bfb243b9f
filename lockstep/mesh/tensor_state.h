// What the ranks along an axis hold of one tensor: the same values, pieces of it, or summands of
// it. Collectives are legal only from the right state, so a missing or doubled reduction is an
// error with a name and not a wrong loss.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "lockstep/base/result.h"
#include "lockstep/mesh/axis.h"

namespace lockstep::mesh {

struct AxisState {
  enum class Kind : std::uint8_t {
    kReplicated,  // every coordinate holds the whole, equal values
    kSharded,     // coordinate i holds piece i along `dim`
    kPartial,     // the value is the sum over the coordinates
  };
  Kind kind = Kind::kReplicated;
  std::int32_t dim = 0;  // of a sharded tensor; 0 otherwise

  static constexpr AxisState replicated() { return {}; }
  static constexpr AxisState sharded(std::int32_t dim) { return {Kind::kSharded, dim}; }
  static constexpr AxisState partial() { return {Kind::kPartial, 0}; }
  bool operator==(const AxisState&) const = default;
};

std::string to_text(AxisState state);  // "replicated", "sharded(1)", "partial"

// A value; replicated on every axis unless said otherwise. Each transition gives the state after
// the collective over all of `axes`, or an error (LS0205) that names the first axis whose state
// does not allow it, that state, and what is needed. REQUIRES: `axes` not empty.
class TensorState {
 public:
  AxisState on(Axis axis) const { return states_.at(static_cast<std::size_t>(axis)); }
  // The same but for `axes`: how an operator states what it produced.
  TensorState with(AxisSet axes, AxisState state) const;

  // sharded -> replicated; several axes must shard the same dim.
  Result<TensorState> all_gather(AxisSet axes) const;
  // partial -> sharded(dim).
  Result<TensorState> reduce_scatter(AxisSet axes, std::int32_t dim) const;
  // partial -> replicated.
  Result<TensorState> all_reduce(AxisSet axes) const;
  // sharded(other dim) -> sharded(dim).
  Result<TensorState> all_to_all(AxisSet axes, std::int32_t dim) const;
  // replicated -> sharded(dim); sends nothing.
  Result<TensorState> slice(AxisSet axes, std::int32_t dim) const;

  bool operator==(const TensorState&) const = default;

 private:
  std::array<AxisState, kNumAxes> states_ = {};
};

std::string to_text(const TensorState& state);  // "tp: sharded(1), dp_shard: partial"

}  // namespace lockstep::mesh
