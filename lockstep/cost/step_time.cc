#include <algorithm>
#include <cmath>

#include "lockstep/cost/collective_time.h"
#include "lockstep/cost/layer_time.h"
#include "lockstep/cost/peak_memory.h"
#include "lockstep/cost/price.h"
#include "lockstep/cost/stage_split.h"

namespace lockstep::cost {
namespace {

using cluster::Term;

struct Pricing {
  const PriceRequest& r;
  Fabric fabric;
  explicit Pricing(const PriceRequest& request)
      : r(request), fabric{request.cluster, request.rates, 1} {}
  double rate(Term term) const { return (*r.rates)[term]; }
  double stride_of_data() const {
    return r.placement == Placement::kDataInside ? r.tp : r.tp * r.pp;
  }
  double stride_of_pipe() const {
    return r.placement == Placement::kDataInside ? r.tp * r.cp * r.dp : r.tp * r.cp;
  }
};

double overlapped(double compute, double communication, double tax) {
  return std::max(compute, communication) + tax * std::min(compute, communication);
}

struct Parameters {
  double dense = 0, expert = 0;  // of one rank, before sharding over data
};

Parameters busiest_parameters(const PriceRequest& r, const StageSplit& split) {
  Parameters most;
  for (const double stage : {0.0, 1.0, r.pp - 1}) {
    if (stage > r.pp - 1) continue;
    const PartParams params = stage_params(r, split, stage);
    most.dense = std::max(most.dense, params.tensor / r.tp + params.replicated);
    most.expert = std::max(most.expert, params.expert / (r.ep * r.etp));
  }
  return most;
}

struct DataTime {
  double reduce = 0, gather = 0;
};

// Gradients once reduced and, where the optimizer is sharded, parameters once gathered.
DataTime data_time(const Pricing& p, const Parameters& own) {
  const PriceRequest& r = p.r;
  const Members dense{r.shard_group(), p.stride_of_data()};
  const Members experts{std::max(1.0, r.tp * r.cp * r.dp / (r.ep * r.etp)),
                        r.ep * r.etp * (r.placement == Placement::kDataInside ? 1 : r.pp)};
  const double replicas = r.dp * r.cp / r.shard_group();
  DataTime time;
  const double grads = r.stack.reduce_bytes, weights = 2;
  const Fabric fabric{r.cluster, r.rates, r.stack.network_share};
  time.reduce = scatter_seconds(fabric, own.dense * grads, dense) +
                scatter_seconds(fabric, own.expert * grads, experts);
  time.gather = gather_seconds(fabric, own.dense * weights, dense) +
                gather_seconds(fabric, own.expert * weights, experts);
  if (r.zero == 0 || r.stack.whole_reduce) time.reduce += time.gather * grads / weights;
  if (r.zero == 0) time.gather = 0;
  if (replicas > 1)
    time.reduce += reduce_seconds(fabric, own.dense * grads / r.shard_group(),
                                  {replicas, p.stride_of_data() * r.shard_group()});
  return time;
}

// Stages 0 to 2: communication once a step, hidden under the last backward and the first forward passes.
double data_exposed(const Pricing& p, const DataTime& data, double forward, double backward,
                    double layers) {
  const PriceRequest& r = p.r;
  if (!r.stack.overlap_data) return data.reduce + data.gather;
  // With chunks, the last microbatches of all but the first chunk still run when gradients are ready.
  const double times =
      r.pp > 1 && r.chunks > 1 ? std::min(r.pp, r.microbatches()) * (r.chunks - 1) / r.chunks : 1;
  const auto exposed = [&](double communication, double window) {
    const double hidden = std::min(communication, window * times);
    return std::max(communication / std::max(1.0, layers), communication - hidden) +
           p.rate(Term::kOverlapTax) * hidden;
  };
  return exposed(data.reduce, backward) + exposed(data.gather, forward);
}

// Stage 3: every layer is gathered for its forward and its backward pass and reduced after it, for each microbatch.
double sharded_exposed(const Pricing& p, const DataTime& data, double forward, double backward) {
  const double tax = p.rate(Term::kOverlapTax);
  const double forwards = overlapped(forward, data.gather, tax) - forward;
  const double both = data.gather + data.reduce;
  return p.r.microbatches() * (forwards + overlapped(backward, both, tax) - backward);
}

void add_pipe(const Pricing& p, StepTime& time) {
  const PriceRequest& r = p.r;
  if (r.pp <= 1) return;
  const double bytes = 2 * r.tokens() * r.shape->hidden / r.tp;
  const double hop = hop_seconds(p.fabric, bytes, p.stride_of_pipe());
  const double steady = r.chunks > 1 && r.stack.overlap_pipe ? 0 : r.microbatches() * r.chunks;
  time.pipe = 2 * hop * (steady + r.pp - 1);
  // Neighbours meet in pairs.
  time.spread = wait_share(r, 2) * (time.forward + time.backward + time.recompute + time.head);
}

}  // namespace

StepTime price_time(const PriceRequest& r) { return price_time(r, layer_times(r)); }

StepTime price_time(const PriceRequest& r, const LayerTimes& times) {
  const Pricing p(r);
  const ModelShape& s = *r.shape;
  const StageSplit split = split_layers(r);
  const double some = remade_share(r);
  const LayerTime plain = mean_of(times.made.plain, times.others.plain, some);
  const LayerTime routed = mean_of(times.made.routed, times.others.routed, some);
  const ComputeTime& head = times.head;
  const double share = s.expert_layers() / s.layers;
  const auto mixed = [&](auto term) { return (1 - share) * term(plain) + share * term(routed); };
  const double forward = mixed([](const LayerTime& l) { return l.forward(); });
  const double backward = mixed([](const LayerTime& l) { return l.backward(); });

  // The busiest rank: most layers, or the head's. Layers on it decide everything below.
  const double head_time = head.forward + head.backward;
  const double inside = r.pp > 2 ? split.middle : std::max(split.first, split.last);
  const bool head_binds =
      r.pp <= 1 || split.last * (forward + backward) + head_time > inside * (forward + backward);
  const double layers = r.pp <= 1    ? s.layers
                        : head_binds ? split.last
                                     : std::max(inside, split.first);
  const double m = r.microbatches();
  StepTime time;
  time.forward = m * layers * mixed([](const LayerTime& l) { return l.compute.forward; });
  time.backward = m * layers * mixed([](const LayerTime& l) { return l.compute.backward; });
  time.recompute = m * layers * mixed([](const LayerTime& l) { return l.compute.recompute; });
  time.tensor =
      m * layers * mixed([](const LayerTime& l) { return l.tensor_forward + l.tensor_backward; });
  time.context = m * layers * mixed([](const LayerTime& l) { return l.context; });
  time.expert = m * layers * share * routed.expert;
  time.head = head_binds ? m * head_time : 0;
  const double mean_layers = s.layers / r.pp;
  time.bubble = bubble_seconds(r, mean_layers * forward + head.forward / r.pp,
                               mean_layers * backward + head.backward / r.pp);
  add_pipe(p, time);
  const Parameters own = busiest_parameters(r, split);
  const DataTime data = data_time(p, own);
  if (r.dp * r.cp > 1)
    time.data = r.zero >= 3 ? sharded_exposed(p, data, layers * forward, layers * backward)
                            : data_exposed(p, data, layers * forward, layers * backward, layers);
  const double shards = r.zero >= 1 ? r.shard_group() : 1;
  const double expert_shards = r.zero >= 1 ? std::max(1.0, r.tp * r.cp * r.dp / (r.ep * r.etp)) : 1;
  time.optimizer = optimizer_seconds(r, own.dense / shards + own.expert / expert_shards);
  // The slowest of N devices whose speeds vary by cv: sqrt(2 ln N) deviations (extreme values).
  time.spread +=
      time.total() * p.rate(Term::kSpread) * std::sqrt(2 * std::log(std::max(1.0, r.devices())));
  return time;
}

Price price(const PriceRequest& r) {
  Price price;
  price.time = price_time(r);
  price.memory = price_memory(r);
  price.usable = capacity_bytes(r.cluster->device);
  price.fits = device_bytes(price.memory) <= price.usable;
  const double seconds = price.time.total();
  price.tokens_per_s = r.global_batch * r.seq / seconds;
  const ForwardFlops flops = forward_flops(*r.shape, r.seq);
  const double all = price.tokens_per_s / (r.devices() * peak_of(r, Precision::kBf16));
  price.mfu_causal = 3 * (flops.matmul + flops.attention_causal) * all;
  price.mfu_full = 3 * (flops.matmul + flops.attention_full) * all;
  return price;
}

}  // namespace lockstep::cost
