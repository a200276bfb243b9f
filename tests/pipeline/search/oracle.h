// Whether a schedule exists, found by living through every course of a step, moment by moment.
// Slow, and knows nothing of how schedules are made: only what Schedule allows and StageTimes
// counts.
#pragma once

#include "lockstep/pipeline/search/stage_problem.h"

namespace lockstep::pipeline {

// Whether some schedule of the problem takes at most `limit`. All costs and the limit are whole
// numbers of at most 1000; F and I take time. At every whole time, each coordinate that is free
// starts any pass that has its input and room, or waits until the next whole time; so idling on
// purpose is tried too. Passes of a stage are taken in microbatch order: for I and W Schedule
// demands it, and F of equal cost can trade places.
bool exists_within(const StageProblem& problem, int limit);

}  // namespace lockstep::pipeline
