// Finds the fastest schedule for measured costs and the memory there is.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/pipeline/schedule.h"
#include "lockstep/sim/stage_sim.h"

namespace lockstep::pipeline {

// A way to cut the model: so many stages per pipeline rank, and what they then cost and may hold.
struct ChunkOption {
  int chunks = 1;
  sim::StageCosts costs;
  int max_held = 1;  // stage activations on one pipeline rank, as StageTimes::peak
};

struct AutoRequest {
  int coords = 1;
  int microbatches = 1;
  std::vector<ChunkOption> options;
};

struct AutoChoice {
  Schedule schedule;
  std::string origin;  // "zb-h1", "interleaved in groups of 12, refilled, 3 moves"
  sim::StageTimes times;
  // No schedule of any option, in a loop or as a V, is faster than this. Equal to times.makespan:
  // the choice is proved to be the best, up to the rounding of costs that are not whole numbers.
  Seconds lower_bound;
};

// Shapes of up to so many stages x microbatches are searched to the end (exhaustive.h): the choice
// is the optimum, and lower_bound says so. A few milliseconds.
inline constexpr int kExhaustivePasses = 12;

// The best of a portfolio (candidates.h): the catalogue, 1f1b with more warm-up, the list
// scheduler; each refilled under max_held where that is faster (refill.h). From the best of each
// option and placement it climbs (hill_climb.h). So the choice is never slower than a named
// schedule that fits, refilled or not. Where a shape is larger than kExhaustivePasses and
// lower_bound (lower_bound.h) is below the makespan, it is not known which of the two is off the
// optimum.
//
// kOutOfRange for a shape that check_shape refuses, for costs that do not fit the shape or are
// negative, and when no option can be met: max_held below the chunks is not enough for one
// microbatch, and as much always is. An option that cannot be met beside one that can is passed
// over. Deterministic; any thread may call it. About a second for 16 pipeline ranks, 2 chunks and
// 64 microbatches.
Result<AutoChoice> auto_schedule(const AutoRequest& request);

}  // namespace lockstep::pipeline
