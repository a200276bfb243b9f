// What each stage of a pipeline takes when they need not take the same: the head makes the last stage slower, and the
// first one holds most microbatches, so it may have to make blocks again that later ones keep. Of a pipeline with one
// stage per rank: the split whose slowest stage is fastest and whose every rank fits, with as few blocks made again on
// each as that takes, found by dynamic programming (pipeline/balance.h). With chunks, whose stages are small: the one
// that prices assume (cost/analytic/stage_split.h), with as many made again on every rank.
// Pure functions of plain values.
#pragma once

#include <vector>

#include "lockstep/cost/analytic/price.h"
#include "lockstep/planner/pass_times.h"
#include "lockstep/spec/layout.h"

namespace lockstep::planner {

// A number of layers of each stage, in the order of stages.
using StageLayers = std::vector<int>;

struct Stages {
  StageLayers layers;
  StageLayers recomputed;  // of them: the first ones, which keep their input alone
};

// As a run deals them unless it is told otherwise.
StageLayers default_layer_split(const cost::PriceRequest& request);

// The dealt layers where none are faster. A request with `remade` has the number chosen for each rank, another keeps
// what it says everywhere. REQUIRES: no more stages than layers, or chunks.
Stages best_stages(const cost::PriceRequest& request, const PassTimes& times);

// These layers, with request.remade blocks of every rank dealt to its stages in turn.
Stages evenly_recomputed(const cost::PriceRequest& request, StageLayers layers);
// The way back: of the rank with most.
int most_recomputed(const cost::PriceRequest& request, const StageLayers& recomputed);

// What the blocks make again, as a layout says it. REQUIRES: Keep::kAll, kCheap or kInput.
spec::Recompute recompute_of(const cost::PriceRequest& request, const Stages& stages);

// Of one rank, and of the one that needs most. REQUIRES: chunks = 1.
cost::Memory rank_memory(const cost::PriceRequest& request, const Stages& stages, int rank);
cost::Memory fullest_rank(const cost::PriceRequest& request, const Stages& stages);

}  // namespace lockstep::planner
