// Improves a schedule by small moves.
#pragma once

#include "lockstep/pipeline/schedule.h"
#include "lockstep/pipeline/search/stage_problem.h"

namespace lockstep::pipeline {

struct Climb {
  Schedule schedule;
  int moves = 0;  // kept that made it faster
};

// Tries up to `tries` times, until lower_bound is reached, to shift one pass by a few places in its
// pipeline rank's list, and keeps the shift if the passes still come in order, nothing waits for
// ever, no pipeline rank holds more than max_held, and the step takes no longer; five times of six
// the pass is one that the makespan hangs on. B is taken apart before. The schedule itself if no
// try made it faster; hence the result is never slower. Deterministic; any thread may call it.
//
// REQUIRES: a schedule of the problem's shape and placement that holds at most max_held.
Climb climb(const Schedule& schedule, const StageProblem& problem, int tries);

}  // namespace lockstep::pipeline
