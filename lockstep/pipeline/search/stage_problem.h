// What a schedule is sought for: a shape and a placement, what its stages cost, what a pipeline
// rank may hold. And the chains through the stages that every such schedule contains.
#pragma once

#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/pipeline/schedule.h"
#include "lockstep/sim/stage_sim.h"

namespace lockstep::pipeline {

// REQUIRES, wherever one is taken: a shape that check_shape accepts, costs for every stage, none
// negative, and max_held at least the chunks. Less holds no microbatch at all: on its way it leaves
// an activation in every chunk of a pipeline rank before the first is freed. That much is enough
// for one microbatch after the other.
struct StageProblem {
  Shape shape;
  Placement placement = Placement::kLoop;
  sim::StageCosts costs;
  int max_held = 1;  // stage activations on one pipeline rank, as StageTimes::peak

  std::size_t coord(int stage) const {
    return static_cast<std::size_t>(coord_of(placement, {stage}, shape.coords).value);
  }
  // What a tensor takes between two neighbouring stages.
  Seconds hop(int stage, int next) const {
    return coord(stage) == coord(next) ? Seconds{} : costs.hop;
  }
};

// Of one microbatch in an empty pipeline; one entry per stage.
struct StageChains {
  std::vector<Seconds> head;        // from the start of the step to that of F
  std::vector<Seconds> round_trip;  // from the end of F to the start of I
  std::vector<Seconds> tail;        // from the end of I to the end of the step

  // The earliest start of I.
  Seconds first_grad(const sim::StageCosts& costs, std::size_t stage) const {
    return head[stage] + costs.forward[stage] + round_trip[stage];
  }
};

StageChains chains_of(const StageProblem& problem);

}  // namespace lockstep::pipeline
