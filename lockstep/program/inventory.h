// What a step consists of, before any order: which tensors cross between pipeline ranks, and which
// ops each pipeline rank must run. Gathers, frees and waits are not in the inventory: how often
// they occur is the program's choice. A sound shape is one that check_step (passes/passes.h)
// accepts.
#pragma once

#include <span>
#include <vector>

#include "lockstep/program/program.h"

namespace lockstep::program {

// One transfer for each microbatch and direction of every boundary between pipeline ranks, in the
// order of Program::transfers. REQUIRES: a sound shape.
std::vector<Transfer> usual_transfers(const StepShape& step);

// Every op the pipeline rank must run exactly once, with its usual group, in no particular order.
// The list at hand decides one thing: where it runs I or W of a unit other than the head, I and W
// are required in place of B. REQUIRES: a sound shape, usual transfers, numbers in range.
std::vector<Op> required_ops(const StepShape& step, Coord coord,
                             std::span<const Transfer> transfers, std::span<const Op> list);

}  // namespace lockstep::program
