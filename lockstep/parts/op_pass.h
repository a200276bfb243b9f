// Which pass of a unit an op of a program is: the runtime runs it, memory and traffic are counted
// from it.
#pragma once

#include <optional>

#include "lockstep/model/arch.h"
#include "lockstep/parts/unit_passes.h"
#include "lockstep/program/program.h"

namespace lockstep::parts {

// None for an op that is not a unit's computation. `unit` is the one of op.unit.
std::optional<UnitPass> pass_of(const program::StepShape& step, const model::Unit& unit,
                                const program::Op& op);

}  // namespace lockstep::parts
