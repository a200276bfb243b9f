// Which elements of whole parameters lie where in a rank's flat buffer, where tensor ranks share a
// unit: initial weights are drawn by it, and whole states are cut and put together.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/model/flat_layout.h"

namespace lockstep::model {

// A rank among those that share a unit.
struct TensorPlace {
  std::int64_t tp = 1;
  std::int64_t coord = 0;
  bool operator==(const TensorPlace&) const = default;
};

// Elements that lie side by side in a rank's buffer and in the whole parameter.
struct FlatRun {
  int param = 0;             // index into Unit::params
  std::int64_t at = 0;       // the first of them in the buffer
  std::int64_t element = 0;  // and in the whole parameter, in row-major order
  std::int64_t length = 0;
  bool operator==(const FlatRun&) const = default;
};

// Those of elements `range` of the rank's buffer, ascending; gaps and padding are in none. One per
// parameter, but one per row of a matrix that is cut by columns.
// REQUIRES: the unit's layout by flat_layouts(model, place.tp).
std::vector<FlatRun> flat_runs(const Unit& unit, const FlatLayout& layout, TensorPlace place,
                               FlatRange range);

}  // namespace lockstep::model
