// How many layers each stage of a pipeline takes when they need not take the same: the head makes the last stage
// slower, and the first one holds most microbatches. Of a pipeline with one stage per rank the split whose slowest
// stage is fastest and whose every rank fits, found by dynamic programming (schedule/balance.h); with chunks, whose
// stages are small, the one that prices assume (cost/stage_split.h).
// Pure functions of plain values.
#pragma once

#include <span>
#include <vector>

#include "lockstep/cost/price.h"
#include "lockstep/search/pass_times.h"

namespace lockstep::search {

// Layers of each stage, in the order of stages.
using StageLayers = std::vector<int>;

// As a run deals them unless it is told otherwise (schedule::split_units). REQUIRES: both at least 1.
StageLayers dealt_layers(int layers, int stages);

// The dealt split where none is faster. REQUIRES: no more stages than layers, or chunks.
StageLayers best_layers(const cost::PriceRequest& request, const PassTimes& times);

// Of the rank that holds most under a split. REQUIRES: chunks = 1.
cost::Memory fullest_rank(const cost::PriceRequest& request, std::span<const int> split);

}  // namespace lockstep::search
