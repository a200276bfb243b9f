// Seconds that one layer, or the head, computes for one microbatch on one rank.
//
// A matrix product of m x k by k x n takes its arithmetic at the device's rate for large products
// plus a share of its operands' way over the memory bus: short sides lower the rate by themselves,
// and no table of shapes is needed where none was measured. Attention and elementwise passes are
// priced apart; a layer never takes less than the host needs to launch it.
#pragma once

#include "lockstep/cost/analytic/price.h"

namespace lockstep::cost {

struct ComputeTime {
  double forward = 0, backward = 0;
  double recompute = 0;  // before the backward pass, of what request.drop.rest() says
};

// REQUIRES: expert_layer only of a model with experts.
ComputeTime layer_compute(const PriceRequest& request, bool expert_layer);
ComputeTime head_compute(const PriceRequest& request);  // projection, loss and embedding

// Attention alone, of one layer; it hides the hops of ring attention.
ComputeTime attention_compute(const PriceRequest& request);

double optimizer_seconds(const PriceRequest& request,
                         double parameters);  // a rank updates that many

// FLOP/s of 16-bit products by the data sheet.
double peak_of(const PriceRequest& request, Precision precision);

}  // namespace lockstep::cost
