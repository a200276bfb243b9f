// How far a run's state is from a reference's.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/model/arch.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/verify/image.h"

namespace lockstep::verify {

// The largest difference between two images.
struct Difference {
  double error = 0;    // infinite where a number is not one
  std::string tensor;  // "blocks.2.attn.q.weight", or "loss", "gradient norm"; empty: no difference
};

// As design 7 measures it: max|difference| over max|reference| of the unit and role; for parameters
// over the larger of that and `lr`.
Difference compare(const model::Model& model, const StepImage& got, const StepImage& reference,
                   Role role, double lr);
// Of loss and gradient norm, each over the reference's.
Difference compare_scalars(const StepImage& got, const StepImage& reference);

// Of parameters after update number `count`, made from the same state: the least r such that parameters
// off by r of the unit's largest, and gradients off by r of the unit's largest root of the second
// moment, explain every difference to first order (a backward error). AdamW divides by that root, so an
// element whose gradient is near zero is far off though nothing is wrong; docs/numerics.md.
Difference compare_updated(const model::Model& model, const StepImage& got,
                           const StepImage& reference, const optim::AdamW& settings,
                           std::int64_t count);
// Of f32 master weights after a free run of `count` updates: max|difference| over how far apart two such
// runs can be, which is `reach` and what roundings to f32 add.
Difference compare_reached(const model::Model& model, const StepImage& got,
                           const StepImage& reference, double reach, std::int64_t count);

}  // namespace lockstep::verify
