// Finalists of a walk, timed again with the schedule itself: every forward and backward pass of
// every stage in the order in which its coordinate runs it, instead of a formula for the bubble.
// Uneven stages, the head on the last and hops between coordinates are then seen where they fall.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lockstep/planner/stage_layers.h"
#include "lockstep/planner/walk.h"
#include "lockstep/sim/stage_sim.h"

namespace lockstep::planner {

struct Finalist {
  Priced priced;  // with the terms of the simulation: they add up to `seconds`
  // Of a step; the walk's own where there is no pipeline, or the schedule cannot be built at this
  // size.
  double seconds = 0;
  double bubble = 0;       // of them: what the pipeline waits, hops included
  double closed_form = 0;  // the walk's own
  bool simulated = false;
  // Layers of each stage; empty where they are dealt as a run deals them by itself. Memory is that
  // of this split.
  StageLayers layers = {};
  // Blocks of each stage that keep their input alone, chosen one by one; empty: what the request
  // says of all.
  StageLayers recomputed = {};
  std::optional<double> by_units =
      {};  // seconds of the whole step op by op, where lowered.h was asked
};

// Long steps are cut to the microbatches that fill and drain a pipeline and some more; the rest
// take as long as the busiest coordinate works. Ranked.
std::vector<Finalist> simulate(std::span<const Priced> walked);
// One of them, with stages of one's own, or with the best when those are empty. REQUIRES: as many
// layers as the model has, on as many stages as the layout.
Finalist simulate(const Priced& walked, const Stages& given = {});

// Passes of a step as a finalist was timed with, of at most so many microbatches: for pictures.
struct TimedPasses {
  pipeline::Schedule schedule;
  sim::StageTimes times;
};
// Absent without a pipeline, and where the schedule cannot be built at this size.
std::optional<TimedPasses> timed_passes(const Finalist& finalist, int microbatches);

// The layers that a question gives, with what the request makes again; empty where it gives none.
Stages given_stages(const Question& question, const cost::PriceRequest& request);

// Fastest first; but before all others comes, of those within kTold of the fastest, the one with
// the fewest axes.
void rank(std::vector<Finalist>& finalists);
// The price of simplicity: so much of a step's time is given for an axis less. Less than any price
// can tell apart.
inline constexpr double kTold = 0.001;

// Whether predictions cannot tell which one is faster: the median error of published runs is
// larger.
bool is_tied(const Finalist& a, const Finalist& b);

// What its stages hold, dealt or chosen.
Stages stages_of(const Finalist& finalist);

// What the slowest of all devices makes of a step's time: a factor.
double slower_devices(const cost::StepTime& time);

}  // namespace lockstep::planner
