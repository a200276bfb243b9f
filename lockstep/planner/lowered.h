// A finalist's whole step as the run would do it, op by op: lowered to units with its gathers,
// reductions, hops and updates, and put on the simulator's clock (sim/simulator.h). Durations are
// those that layouts were priced with; what hides behind what is no longer a formula. A step of
// this runtime may so take longer than its price: it gathers the updated weights before the first
// pass, unit by unit, where the price lets them hide under it. Pure functions; any thread may call
// them.
#pragma once

#include <optional>
#include <span>

#include "lockstep/planner/finalists.h"

namespace lockstep::planner {

// Seconds of one step; absent when the schedule cannot be lowered at this size. Steps of more than
// `most` passes of a unit are shortened to two lengths, and the rest of the microbatches takes what
// one more of them did.
std::optional<double> lowered_seconds(const Finalist& finalist, int most = 1 << 13);

// Fills in `by_units` of the first three. Their order stays.
void time_by_units(std::span<Finalist> finalists);

}  // namespace lockstep::planner
