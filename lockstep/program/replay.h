// The part of validation that replays a list's effects on values, in order.
#pragma once

#include "lockstep/program/problem.h"
#include "lockstep/program/program.h"

namespace lockstep::program {

// - What an op reads, changes or frees is live and complete: no asynchronous op that makes or changes
//   it is still without its Wait. What it changes or frees is read by no asynchronous op in flight.
// - A value is defined only while it is not live.
// - Every asynchronous op has exactly one Wait.
// - At the end only persistent() is live, and all of it; Count and Norm end with the step.
// - Weights under ZeRO 1-2 are read only after their Publish.
// - Periods are added to a gradient in ascending order. Its partial elements are summed over the
//   tensor group only after all of them, the tied reduction uses it only after that, Norm only after
//   that; what Norm used is not changed any more. So the two collectives that span coordinates come in
//   one order on all of them.
// Uses of values come from effects() alone. REQUIRES: check_numbers (structure.h) found nothing.
void check_values(const Program& program, Coord coord, Problems& problems);

}  // namespace lockstep::program
