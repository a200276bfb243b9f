#include "lockstep/search/pass_times.h"

#include <algorithm>

#include "lockstep/cost/layer_time.h"

namespace lockstep::search {

PassTimes pass_times(const cost::PriceRequest& request, const cost::StepTime& time) {
  const bool inputs = request.keep == cost::Keep::kInput;
  cost::PriceRequest r = request;
  r.others = r.kept_by_rest();
  r.remade = inputs ? 1 : 0;  // so that others are priced too
  const cost::LayerTimes times = cost::layer_times(r);
  const double share = r.shape->expert_layers() / r.shape->layers;
  const auto layer = [&](const cost::KindTimes& kind) {
    return cost::mean_of(kind.routed, kind.plain, share);
  };
  const cost::LayerTime made = layer(times.made), kept = inputs ? layer(times.others) : made;
  // The price of all hops of a step, each way, back to one of them: those it could not hide.
  const double hops =
      2 * (request.chunks > 1 ? request.pp - 1
                              : request.microbatches() * request.chunks + request.pp - 1);
  PassTimes found;
  found.forward = kept.forward();
  found.backward = kept.backward();
  found.again = made.forward() + made.backward() - found.layer();
  found.head_forward = times.head.forward;
  found.head_backward = times.head.backward;
  found.hop = request.pp > 1 ? time.pipe / std::max(1.0, hops) : 0;
  return found;
}

}  // namespace lockstep::search
