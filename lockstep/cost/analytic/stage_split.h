// How layers lie on the stages of a pipeline, and how many microbatches a stage holds at once.
#pragma once

#include "lockstep/cost/analytic/price.h"

namespace lockstep::cost {

// Layers on the first pipeline rank, on the last, and on the fullest between: of these the mean
// where a request says what its ends hold.
struct StageSplit {
  double first = 0, middle = 0, last = 0;
};

// As pipeline::default_layer_split has them, on the ranks of the request's schedule. A request may
// say what its ends hold; the rest is then shared evenly.
StageSplit split_layers(const PriceRequest& request);

// Whether the head is on that pipeline rank: on the last, or on the first where stages go down and
// up as a V.
bool holds_head(const PriceRequest& request, int rank);

double layers_on(const PriceRequest& request, const StageSplit& split, int stage);

// Layers with experts on a pipeline rank: leading dense layers lie on the first.
double expert_layers_on(const PriceRequest& request, const StageSplit& split, int stage);

// Of the pipeline rank that has most.
double most_layers(const PriceRequest& request);

// Of the blocks of that rank, how many `request.drop` is of: 0 to 1.
double recomputed_share(const PriceRequest& request);

// Microbatches whose activations a pipeline rank holds at its worst moment, in units of all its
// layers.
double in_flight(const PriceRequest& request, int stage);

// Seconds a pipeline adds to m x (forward + backward) of its busiest rank, for `forward` and
// `backward` of one microbatch on one rank; half of a backward pass is taken to be weight gradients
// where a schedule splits it. Where the busiest rank works `more` in a step than the mean, the
// others wait for it in place of what a schedule loses with every microbatch.
double bubble_seconds(const PriceRequest& request, double forward, double backward,
                      double more = 0);

}  // namespace lockstep::cost
