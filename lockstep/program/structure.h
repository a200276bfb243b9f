// The part of validation that looks at which ops a list holds and in which order it runs a unit's
// compute, without asking what they do to values.
#pragma once

#include "lockstep/program/problem.h"
#include "lockstep/program/program.h"

namespace lockstep::program {

// Numbers of every op of the coordinate: in range where its kind uses them, -1 elsewhere; units on
// their own coordinate; waits of asynchronous ops; the usual reach. Only a list without such problems
// may be given to the other checks and to effects().
// REQUIRES: a sound shape and usual transfers (inventory.h), one list per coordinate.
void check_numbers(const Program& program, Coord coord, Problems& problems);

// The list holds exactly the step's inventory, each op once; gathers and frees only under ZeRO-3.
void check_inventory(const Program& program, Coord coord, Problems& problems);

// F before R before I (or B) before W of the same unit and microbatch; I, W and B of a unit in
// ascending order of microbatches, which makes the sum of its gradients the same in every schedule.
void check_compute_order(const Program& program, Coord coord, Problems& problems);

}  // namespace lockstep::program
