// Finalists of a walk, timed again with the schedule itself: every forward and backward pass of every stage in the
// order in which its coordinate runs it, instead of a formula for the bubble. Uneven stages, the head on the last
// and hops between coordinates are then seen where they fall.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lockstep/search/stage_layers.h"
#include "lockstep/search/walk.h"

namespace lockstep::search {

struct Finalist {
  Priced priced;
  // Of a step; the walk's own where there is no pipeline, or the schedule can not be built at this size.
  double seconds = 0;
  double bubble = 0;  // of them: what the pipeline waits, hops included
  bool simulated = false;
  // Layers of each stage; empty where they are dealt as a run deals them by itself. Memory is that of this split.
  StageLayers layers = {};
  // Blocks of each stage that keep their input alone, chosen one by one; empty: what the request says of all.
  StageLayers remade = {};
  std::optional<double> by_units =
      {};  // seconds of the whole step op by op, where lowered.h was asked
};

// Fastest first; of those within 0.2 % of each other, which no price can tell apart, the ones with fewer axes. Long
// steps are cut to the microbatches that fill and drain a pipeline and some more; the rest take as long as the busiest
// coordinate works.
std::vector<Finalist> simulate(std::span<const Priced> walked);
// One of them, with stages of one's own, or with the best when those are empty. REQUIRES: as many layers as the model
// has, on as many stages as the layout.
Finalist simulate(const Priced& walked, const Stages& given = {});

// What its stages hold, dealt or chosen.
Stages stages_of(const Finalist& finalist);

// What the slowest of all devices makes of a step's time: a factor.
double slower_devices(const cost::StepTime& time);

}  // namespace lockstep::search
