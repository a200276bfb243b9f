// Times a schedule stage by stage, without lowering it: what a planner asks of thousands of
// candidates. Compute runs in the order of each pipeline rank's list; a tensor reaches another
// pipeline rank one hop after it was made, whatever else is under way; on its own pipeline rank it
// is there at once. simulator.h times the whole step of the few that are worth lowering.
//
// Times are only added, subtracted and compared, so costs that are whole numbers of any unit give
// exact results up to 2^53 of it.
#pragma once

#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/pipeline/schedule.h"

namespace lockstep::sim {

// Of one microbatch; one entry per stage, so stages may differ.
struct StageCosts {
  std::vector<Seconds> forward;
  std::vector<Seconds> input_grad;
  std::vector<Seconds> weight_grad;  // B takes both: exactly their sum
  Seconds hop;                       // from one pipeline rank to another
};

// Equal stages: F, I and W of a whole pipeline rank take this long, a chunk of it 1/chunks.
StageCosts even_costs(const pipeline::Shape& shape, Seconds forward, Seconds input_grad,
                      Seconds weight_grad, Seconds hop = {});

struct TimedPass {
  Seconds start;
  Seconds end;
};

struct StageTimes {
  std::vector<std::vector<TimedPass>> coords;  // beside the passes of the schedule
  Seconds makespan;                            // of one step from a standing start
  Seconds work;                                // of the busiest pipeline rank
  // Most stage activations that a pipeline rank holds at once: F adds one, W or B frees one, I
  // keeps it. Divided by the chunks: microbatches of a whole pipeline rank.
  std::vector<int> peak;

  // What a step loses when the next one waits for all pipeline ranks, as a global gradient norm
  // makes it; and when it does not.
  Seconds bubble() const { return makespan - work; }
  Seconds bubble_without_barrier() const;
  int max_peak() const;
};

// REQUIRES: costs for every stage of the schedule, none negative. Any thread may call it.
StageTimes simulate_stages(const pipeline::Schedule& schedule, const StageCosts& costs);

}  // namespace lockstep::sim
