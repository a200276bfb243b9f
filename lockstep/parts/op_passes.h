// What an op of a program runs of a unit's passes: the runtime runs these, and memory and
// traffic are counted from them.
#pragma once

#include <vector>

#include "lockstep/model/arch.h"
#include "lockstep/parts/unit_passes.h"
#include "lockstep/program/program.h"

namespace lockstep::parts {

// In order; none for an op that is not a unit's computation. `unit` is the one of op.unit.
std::vector<UnitPass> op_passes(const program::StepShape& step, const model::Unit& unit,
                                const program::Op& op);

// Whether the pass writes or adds to the weights' gradients.
bool writes_gradients(UnitPass pass);

}  // namespace lockstep::parts
