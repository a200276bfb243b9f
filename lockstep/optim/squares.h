// The sum of squared gradients, exactly, from sums over aligned tiles of 256 elements. A tile is
// never cut by a shard boundary and is always added in the same order, so the total has the same
// bits in every layout.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/base/exact_sum.h"
#include "lockstep/model/flat_layout.h"

namespace lockstep::optim {

// Adds elements `range` of a unit's gradient, which are all of `grad`, leaving out the second copy
// of a tied weight and, but for the first of the tensor ranks that hold it, what several of them
// hold. REQUIRES: range.begin is a multiple of a tile.
void add_squares(const model::FlatLayout& layout, model::FlatRange range, const at::Tensor& grad,
                 ExactSum& sum, model::TensorPlace place = {});
// The same on any device: adds ExactSum::Words to `words`, and the host does not wait.
void add_squares(const model::FlatLayout& layout, model::FlatRange range, const at::Tensor& grad,
                 const at::Tensor& words, model::TensorPlace place = {});

}  // namespace lockstep::optim
