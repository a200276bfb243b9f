// What each stage of a pipeline takes when they need not take the same: the head makes the last
// stage slower, and the first one holds most microbatches, so it may have to recompute blocks that
// later ones keep. Of a pipeline with one stage per rank: the split whose slowest stage is fastest
// and whose every rank fits, with as few blocks recomputed on each as that takes, found by dynamic
// programming (pipeline/balance.h). With chunks, whose stages are small: that of
// pipeline::default_layer_split, with as many recomputed on every rank. Pure functions of plain
// values.
#pragma once

#include <vector>

#include "lockstep/cost/analytic/price.h"
#include "lockstep/spec/layout.h"

namespace lockstep::planner {

// What a simulation of a priced layout is made of: one microbatch through one layer, through the
// head, and from one pipeline rank to the next. Seconds, with the communication that nothing hides
// in the pass that waits for it.
struct PassTimes {
  double forward = 0, backward = 0;  // of one layer; rows that are recomputed count as backward
  double again = 0;                  // besides: a block that keeps its input alone
  double head_forward = 0, head_backward = 0;
  double hop = 0;  // one way
  double layer() const { return forward + backward; }
  double head() const { return head_forward + head_backward; }
  // Of a stage with so many layers, of which some are recomputed.
  double stage(int layers, int recomputed, bool has_head) const {
    return layers * layer() + recomputed * again + (has_head ? head() : 0);
  }
};

PassTimes pass_times(const cost::PriceRequest& request);
// With the exchanges of ZeRO-3 that passes cannot hide.
PassTimes sharded_pass_times(const cost::PriceRequest& request);

// A number of layers of each stage, in the order of stages.
using StageLayers = std::vector<int>;

struct Stages {
  StageLayers layers;
  StageLayers recomputed;  // of them: the first ones, which keep their input alone
};

// As a run deals them unless it is told otherwise: pipeline::default_layer_split.
StageLayers default_layer_split(const cost::PriceRequest& request);

// The default split where none is faster. A request with `recomputed` has the number chosen for
// each rank, another drops the same everywhere. REQUIRES: no more stages than layers, or chunks.
Stages best_stages(const cost::PriceRequest& request, const PassTimes& times);

// The same with as many blocks recomputed as software can say, none with fewer.
Stages as_counted(const cost::Stack& stack, Stages stages);

// These layers, with request.recomputed blocks of every rank dealt to its stages in turn.
Stages evenly_recomputed(const cost::PriceRequest& request, StageLayers layers);
// What is given of layers and of those recomputed; the rest as a run splits them, and evenly.
Stages stages_of(const cost::PriceRequest& request, const StageLayers& layers,
                 const StageLayers& recomputed);
// The way back: of the rank with most.
int most_recomputed(const cost::PriceRequest& request, const StageLayers& recomputed);

// What the blocks recompute, as a layout says it.
spec::Recompute recompute_of(const cost::PriceRequest& request, const Stages& stages);

// Of one rank, and of the one that needs most. REQUIRES: chunks = 1.
cost::Memory rank_memory(const cost::PriceRequest& request, const Stages& stages, int rank);
cost::Memory fullest_rank(const cost::PriceRequest& request, const Stages& stages);

}  // namespace lockstep::planner
