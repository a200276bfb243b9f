// What an op of a program runs of a unit's passes: memory and traffic are counted from these.
#pragma once

#include <vector>

#include "lockstep/model/arch.h"
#include "lockstep/parts/unit_passes.h"
#include "lockstep/program/program.h"

namespace lockstep::cost {

// In order; none for an op that is not a unit's computation. `unit` is the one of op.unit.
std::vector<parts::UnitPass> op_passes(const program::StepShape& step, const model::Unit& unit,
                                       const program::Op& op);

// Whether the pass writes or adds to the weights' gradients.
bool writes_gradients(parts::UnitPass pass);

}  // namespace lockstep::cost
