#include "lockstep/search/pass_times.h"

#include <algorithm>

#include "lockstep/cost/compute_time.h"

namespace lockstep::search {

PassTimes pass_times(const cost::PriceRequest& request, const cost::StepTime& time) {
  // A layer costs the same on every stage, so it is priced as if there were one.
  cost::PriceRequest r = request;
  r.dp *= r.pp, r.pp = 1, r.chunks = 1, r.pipe = cost::Pipe::k1f1b, r.dp_shard = 0;
  r.global_batch = r.dp * r.microbatch;
  const cost::StepTime one = cost::price_time(r);
  const double layers = r.shape->layers;
  const double exchanged = one.tensor + one.context + one.expert;
  const double share = one.forward / std::max(1e-300, one.forward + one.backward);
  const cost::ComputeTime head = cost::head_compute(request);
  // The price of all hops of a step, each way, back to one of them: those it could not hide.
  const double hops =
      2 * (request.chunks > 1 ? request.pp - 1
                              : request.microbatches() * request.chunks + request.pp - 1);
  PassTimes found;
  found.forward = (one.forward + share * exchanged) / layers;
  found.backward = (one.backward + one.recompute + (1 - share) * exchanged) / layers;
  if (request.keep == cost::Keep::kInput) found.again = one.recompute / layers;
  found.head_forward = head.forward;
  found.head_backward = head.backward;
  found.hop = request.pp > 1 ? time.pipe / std::max(1.0, hops) : 0;
  return found;
}

}  // namespace lockstep::search
