// Moves weight gradients into the time a pipeline rank would stand idle: nothing waits for them but
// the memory they free. So the order of F and I, which a generator gives, and the place of W, which
// costs and memory decide, are chosen apart.
#pragma once

#include "lockstep/base/result.h"
#include "lockstep/pipeline/schedule.h"
#include "lockstep/sim/stage_sim.h"

namespace lockstep::pipeline {

// The schedule with its weight gradients placed anew, B taken apart, and the order of F and I kept:
// where the next F or I is not ready, W runs, the oldest first, as long as the gap is at least a
// share of its time; before an F that would hold more than `max_held` stage activations
// (StageTimes::peak) on its pipeline rank, W runs until it fits; the rest runs at the end. The best
// of several shares, or the schedule as it was if none is faster and it fits. So the result is
// never slower than a schedule that fits.
//
// kOutOfRange when the order of F and I needs more activations than max_held whatever W does; the
// error names the pass and the pipeline rank. REQUIRES: as simulate_stages.
Result<Schedule> refill(const Schedule& schedule, const sim::StageCosts& costs, int max_held);

}  // namespace lockstep::pipeline
