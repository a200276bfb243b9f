// What an op of a program runs of a unit's passes: memory and traffic are counted from these.
#pragma once

#include <vector>

#include "lockstep/arch/arch.h"
#include "lockstep/arch/pass_bytes.h"
#include "lockstep/schedule/program.h"

namespace lockstep::cost {

// In order; none for an op that is not a unit's computation. `unit` is the one of op.unit.
std::vector<arch::UnitPass> op_passes(const schedule::StepShape& step, const arch::Unit& unit,
                                      const schedule::Op& op);

// Whether the pass writes or adds to the weights' gradients.
bool writes_gradients(arch::UnitPass pass);

}  // namespace lockstep::cost
