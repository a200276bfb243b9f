#include "lockstep/planner/pass_times.h"

#include "lockstep/cost/analytic/layer_time.h"

namespace lockstep::planner {

PassTimes pass_times(const cost::PriceRequest& request) {
  const bool inputs = request.keep == cost::Keep::kInput;
  cost::PriceRequest r = request;
  r.others = r.default_keep();
  r.recomputed = inputs ? 1 : 0;  // so that others are priced too
  const cost::LayerTimes times = cost::layer_times(r);
  const cost::LayerTime made = mean_of(*r.shape, times.made);
  const cost::LayerTime kept = inputs ? mean_of(*r.shape, times.others) : made;
  PassTimes found;
  found.forward = kept.forward();
  found.backward = kept.backward();
  found.again = made.forward() + made.backward() - found.layer();
  found.head_forward = times.head.forward;
  found.head_backward = times.head.backward;
  found.hop = cost::hop_seconds(request);
  return found;
}

PassTimes sharded_pass_times(const cost::PriceRequest& request) {
  PassTimes found = pass_times(request);
  const cost::PassPair kept = cost::sharded_layer(request, {found.forward, found.backward});
  const cost::PassPair made =
      cost::sharded_layer(request, {found.forward, found.backward + found.again});
  found.forward = kept.forward, found.backward = kept.backward;
  found.again = made.backward - kept.backward;
  return found;
}

}  // namespace lockstep::planner
