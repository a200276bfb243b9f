// Which slices a rank's flat buffer of a unit consists of.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/checkpoint/slice.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/model/flat_runs.h"

namespace lockstep::checkpoint {

struct UnitSlice {
  Slice slice;
  std::int64_t at = 0;  // element of the unit's buffer where it begins; it lies there without gaps
  // Some other unit or tensor rank holds the same and writes it: a head's copy of the embedding, or
  // what tensor ranks hold alike and this one is not their first.
  bool is_copy = false;
};

// Of elements `range` of the buffer of unit number `unit`, ascending in `at`; gaps and padding are in
// none. REQUIRES: the unit's layout by flat_layouts(model, place.tp).
std::vector<UnitSlice> unit_slices(const model::Model& model, int unit,
                                   const model::FlatLayout& layout, model::TensorPlace place,
                                   model::FlatRange range, Role role);

// Every trained tensor of the model once, whole, in the order of its units: what a checkpoint of it holds.
std::vector<Slice> model_slices(const model::Model& model, Role role);

}  // namespace lockstep::checkpoint
