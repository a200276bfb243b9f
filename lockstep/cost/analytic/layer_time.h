// Seconds that one layer, or the head, takes for one microbatch on one rank: computation
// (compute_time.h) and the communication along tensor, context and expert axes that it does not
// hide.
//
// They depend on no other axis and no schedule: layouts with the same tp, cp, ep, etp, sp, context,
// microbatch and drop, and all with `recomputed` set or all without, share them, if weight
// gradients are added up inside their products (Stack::fused_sums). A walk over layouts makes them
// once. Pure functions of plain values.
#pragma once

#include "lockstep/cost/analytic/compute_time.h"

namespace lockstep::cost {

struct LayerTime {
  ComputeTime compute;
  bool again = false;  // all of it is recomputed, exchanges too
  double tensor_forward = 0, tensor_backward = 0, context = 0, expert = 0;
  double forward() const { return compute.forward + tensor_forward + context / 3 + expert / 2; }
  double backward() const {
    return compute.backward + compute.recompute + tensor_backward + context * 2 / 3 + expert / 2;
  }
};

// Of a layer with one MLP and one with experts; zero where the model has none.
struct KindTimes {
  LayerTime plain, routed;
};

struct LayerTimes {
  KindTimes made;    // by `request.drop`
  KindTimes others;  // by its rest(), where `request.recomputed` is set
  ComputeTime head;
};

LayerTimes layer_times(const PriceRequest& request);

// Where this share of the layers is as `made`, their mean with the others.
LayerTime mean_of(const LayerTime& made, const LayerTime& others, double share);

// Of the layers of a model, some with experts.
inline LayerTime mean_of(const ModelShape& shape, const KindTimes& kinds) {
  return mean_of(kinds.routed, kinds.plain, shape.expert_layers() / shape.layers);
}

// Share by which that many ranks that meet after every pass lengthen it.
double wait_share(const PriceRequest& request, int ranks);

}  // namespace lockstep::cost
