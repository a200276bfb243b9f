#include "lockstep/search/pass_times.h"

#include <algorithm>

#include "lockstep/cost/compute_time.h"

namespace lockstep::search {

namespace {

// Of one microbatch on one stage.
cost::StepTime one_pass(cost::PriceRequest r, cost::Keep keep) {
  r.keep = keep, r.remade = 0;
  r.dp *= r.pp, r.pp = 1, r.chunks = 1, r.pipe = cost::Pipe::k1f1b, r.dp_shard = 0;
  r.global_batch = r.dp * r.microbatch;
  return cost::price_time(r);
}

double exchanged(const cost::StepTime& time) { return time.tensor + time.context + time.expert; }

double layers_of(const cost::StepTime& time) {
  return time.forward + time.backward + time.recompute + exchanged(time);
}

}  // namespace

PassTimes pass_times(const cost::PriceRequest& request, const cost::StepTime& time) {
  // A layer costs the same on every stage, so it is priced as if there were one.
  const bool inputs = request.keep == cost::Keep::kInput;
  const cost::StepTime one = one_pass(request, inputs ? request.others : request.keep);
  const double layers = request.shape->layers;
  const double share = one.forward / std::max(1e-300, one.forward + one.backward);
  const cost::ComputeTime head = cost::head_compute(request);
  // The price of all hops of a step, each way, back to one of them: those it could not hide.
  const double hops =
      2 * (request.chunks > 1 ? request.pp - 1
                              : request.microbatches() * request.chunks + request.pp - 1);
  PassTimes found;
  found.forward = (one.forward + share * exchanged(one)) / layers;
  found.backward = (one.backward + one.recompute + (1 - share) * exchanged(one)) / layers;
  if (inputs) found.again = (layers_of(one_pass(request, request.keep)) - layers_of(one)) / layers;
  found.head_forward = head.forward;
  found.head_backward = head.backward;
  found.hop = request.pp > 1 ? time.pipe / std::max(1.0, hops) : 0;
  return found;
}

}  // namespace lockstep::search
