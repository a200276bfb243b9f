// The parts of validation of one list: which ops it holds and in which order it runs a unit's
// compute (structure.cc), then what they do to values (replay.cc).
#pragma once

#include "lockstep/program/validate.h"

namespace lockstep::program {

// Numbers of every op of the pipeline rank: in range where its kind uses them, -1 elsewhere; units
// on their own rank; waits of asynchronous ops; the usual group. Only a list without such
// problems may be given to the other checks and to effects().
// REQUIRES: a sound shape and usual transfers (inventory.h), one list per pipeline rank.
void check_numbers(const Program& program, Coord coord, Problems& problems);

// The list holds exactly the step's inventory, each op once; gathers and frees only under ZeRO-3.
void check_inventory(const Program& program, Coord coord, Problems& problems);

// F before R before I (or B) before W of the same unit and microbatch; I, W and B of a unit in
// ascending order of microbatches, which makes the sum of its gradients the same in every schedule.
void check_compute_order(const Program& program, Coord coord, Problems& problems);

// - What an op reads, changes or frees is live and complete: no asynchronous op that makes or
//   changes it is still without its Wait. What it changes or frees is read by no asynchronous op in
//   flight.
// - A value is defined only while it is not live.
// - Every asynchronous op has exactly one Wait.
// - At the end only persistent() is live, and all of it; Count and Norm end with the step.
// - Weights under ZeRO 1-2 are read only after their Publish.
// - Periods are added to a gradient in ascending order. Its partial elements are summed over the
//   tensor group only after all of them, the tied reduction uses it only after that, Norm only
//   after that; what Norm used is not changed any more. So the two collectives that span
//   pipeline ranks come in one order on all of them.
// Uses of values come from effects() alone. REQUIRES: check_numbers found nothing.
void check_values(const Program& program, Coord coord, Problems& problems);

}  // namespace lockstep::program
