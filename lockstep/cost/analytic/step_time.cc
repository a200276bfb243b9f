#include <algorithm>
#include <cmath>

#include "lockstep/cost/analytic/layer_time.h"
#include "lockstep/cost/analytic/peak_memory.h"
#include "lockstep/cost/analytic/price.h"
#include "lockstep/cost/analytic/stage_split.h"

namespace lockstep::cost {
namespace {

using cluster::Term;

double overlapped(double compute, double communication, double tax) {
  return std::max(compute, communication) + tax * std::min(compute, communication);
}

RankParams busiest_parameters(const PriceRequest& r, const StageSplit& split) {
  RankParams most;
  for (const int stage : {0, 1, r.pp - 1}) {
    if (stage > r.pp - 1) continue;
    const RankParams own = on_rank(r, stage_params(r, split, stage));
    most.dense = std::max(most.dense, own.dense);
    most.expert = std::max(most.expert, own.expert);
  }
  return most;
}

struct DataTime {
  double reduce = 0, gather = 0;
};

// Gradients once reduced and, where the optimizer is sharded, parameters once gathered.
DataTime data_time(const PriceRequest& r, const RankParams& own) {
  const Members dense{r.shard_group(), r.data_stride()};
  const Members experts{r.expert_copies(), r.expert_stride()};
  const int replicas = r.dp * r.cp / r.shard_group();
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
                                  {replicas, r.data_stride() * r.shard_group()});
  return time;
}

// Stages 0 to 2: communication once a step, hidden under the last backward and the first forward
// passes.
double once_exposed(const PriceRequest& r, const DataTime& data, double forward, double backward,
                    double layers) {
  if (!r.stack.overlap_data) return data.reduce + data.gather;
  // With chunks, the last microbatches of all but the first chunk still run when gradients are
  // ready.
  const auto m = static_cast<double>(r.microbatches());
  const double times =
      r.pp > 1 && r.chunks > 1 ? std::min<double>(r.pp, m) * (r.chunks - 1) / r.chunks : 1;
  const auto exposed = [&](double communication, double window) {
    const double hidden = std::min(communication, window * times);
    return std::max(communication / std::max(1.0, layers), communication - hidden) +
           r.rate(Term::kOverlapTax) * hidden;
  };
  const double reductions = r.zero == 2 && r.stack.reduce_each_microbatch ? m : 1;
  return reductions * exposed(data.reduce, backward) + exposed(data.gather, forward);
}

// Stage 3: every layer is gathered for its forward and its backward pass and reduced after it, for
// each microbatch.
PassPair sharded(const PriceRequest& r, const DataTime& data, const PassPair& passes) {
  const double tax = r.rate(Term::kOverlapTax);
  return {overlapped(passes.forward, data.gather, tax),
          overlapped(passes.backward, data.gather + data.reduce, tax)};
}

// Of a rank whose passes take so long.
double data_exposed(const PriceRequest& r, const DataTime& data, double forward, double backward,
                    double layers) {
  if (r.dp * r.cp <= 1) return 0;
  if (r.zero < 3) return once_exposed(r, data, forward, backward, layers);
  const PassPair passes = sharded(r, data, {forward, backward});
  return static_cast<double>(r.microbatches()) *
         (passes.forward - forward + passes.backward - backward);
}

struct Stage {
  double layers = 0, forward = 0, backward = 0;  // seconds of one layer
};

// Of stages alike, each with its share of the head; the busiest rank is busy for so long.
double bubble(const PriceRequest& r, const DataTime& data, const Stage& most,
              const ComputeTime& head, double busy) {
  if (r.pp <= 1) return 0;
  PassPair passes = {most.layers * most.forward, most.layers * most.backward};
  const bool is_sharded = r.zero >= 3 && r.dp * r.cp > 1;
  if (is_sharded) passes = sharded(r, data, passes);
  const double share = static_cast<double>(r.shape->layers) / r.pp / most.layers;
  const PassPair mean = {share * passes.forward + head.forward / r.pp,
                         share * passes.backward + head.backward / r.pp};
  return bubble_seconds(
      r, mean.forward, mean.backward,
      busy - static_cast<double>(r.microbatches()) * (mean.forward + mean.backward));
}

void add_pipe(const PriceRequest& r, StepTime& time) {
  if (r.pp <= 1) return;
  const double steady =
      r.chunks > 1 && r.stack.overlap_pipe ? 0 : static_cast<double>(r.microbatches()) * r.chunks;
  time.pipe = 2 * hop_seconds(r) * (steady + r.pp - 1);
}

}  // namespace

double hop_seconds(const PriceRequest& r) {
  if (r.pp <= 1) return 0;
  return hop_seconds(r.fabric(), 2 * r.tokens() * r.shape->hidden / r.tp, r.pipe_stride());
}

double spread_seconds(const PriceRequest& r, const StepTime& time) {
  // Neighbours of a pipeline wait for each other in pairs, after each pass with all that it waits
  // for itself; ZeRO-3 gathers and reduces in every pass.
  const double passes = time.passes() + (r.zero >= 3 ? time.data : 0);
  const double met = r.pp > 1 ? wait_share(r, 2) * passes : 0;
  // The slowest of N devices whose speeds vary by cv: sqrt(2 ln N) deviations (extreme values).
  const double slowest = r.rate(Term::kSpread) * std::sqrt(2 * std::log(std::max(1, r.devices())));
  return met + (time.total() - time.spread + met) * slowest;
}

PassPair sharded_layer(const PriceRequest& r, const PassPair& passes) {
  if (r.zero < 3 || r.dp * r.cp <= 1) return passes;
  const DataTime data = data_time(r, busiest_parameters(r, split_layers(r)));
  const double layers = most_layers(r);
  return sharded(r, {data.reduce / layers, data.gather / layers}, passes);
}

double once_exposed_seconds(const PriceRequest& r, const PassPair& passes, double layers) {
  if (r.dp * r.cp <= 1) return 0;
  return once_exposed(r, data_time(r, busiest_parameters(r, split_layers(r))), passes.forward,
                      passes.backward, layers);
}

StepTime price_time(const PriceRequest& r) { return price_time(r, layer_times(r)); }

StepTime price_time(const PriceRequest& r, const LayerTimes& times) {
  const ModelShape& s = *r.shape;
  const StageSplit split = split_layers(r);
  const double some = recomputed_share(r);
  const LayerTime plain = mean_of(times.made.plain, times.others.plain, some);
  const LayerTime routed = mean_of(times.made.routed, times.others.routed, some);
  const ComputeTime& head = times.head;
  const double share = s.expert_layers() / s.layers;
  const auto mixed = [&](auto term) { return (1 - share) * term(plain) + share * term(routed); };
  const double forward = mixed([](const LayerTime& l) { return l.forward(); });
  const double backward = mixed([](const LayerTime& l) { return l.backward(); });

  const RankParams own = busiest_parameters(r, split);
  const DataTime data = data_time(r, own);
  const auto m = static_cast<double>(r.microbatches());
  const double head_time = head.forward + head.backward;
  const auto exposed = [&](double layers) {
    return data_exposed(r, data, layers * forward, layers * backward, layers);
  };
  const auto busy = [&](double layers, double head_seconds) {
    return m * (layers * (forward + backward) + head_seconds) + exposed(layers);
  };
  // The busiest rank, with what it cannot hide: that of the head, or one with most layers.
  const double inside = std::max(split.first, r.pp > 2 ? split.middle : split.last);
  const bool head_binds = r.pp <= 1 || busy(split.last, head_time) > busy(inside, 0);
  const double layers = r.pp <= 1 ? s.layers : head_binds ? split.last : inside;
  StepTime time;
  time.forward = m * layers * mixed([](const LayerTime& l) { return l.compute.forward; });
  time.backward = m * layers * mixed([](const LayerTime& l) { return l.compute.backward; });
  time.recompute = m * layers * mixed([](const LayerTime& l) { return l.compute.recompute; });
  time.tensor =
      m * layers * mixed([](const LayerTime& l) { return l.tensor_forward + l.tensor_backward; });
  time.context = m * layers * mixed([](const LayerTime& l) { return l.context; });
  time.expert = m * layers * share * routed.expert;
  time.head = head_binds ? m * head_time : 0;
  time.data = exposed(layers);
  time.bubble = bubble(r, data, {inside, forward, backward}, head, busy(layers, time.head / m));
  add_pipe(r, time);
  const int shards = r.zero >= 1 ? r.shard_group() : 1;
  const int expert_shards = r.zero >= 1 ? r.expert_copies() : 1;
  time.optimizer = optimizer_seconds(r, own.dense / shards + own.expert / expert_shards);
  time.spread = spread_seconds(r, time);
  return time;
}

Price price(const PriceRequest& r) {
  Price price;
  price.time = price_time(r);
  price.memory = price_memory(r);
  price.usable = room_bytes(r);
  price.fits = device_bytes(price.memory) <= price.usable;
  const double seconds = price.time.total();
  price.tokens_per_s = r.step_tokens() / seconds;
  const ForwardFlops flops = forward_flops(*r.shape, r.seq);
  const double all = price.tokens_per_s / (r.devices() * peak_of(r, Precision::kBf16));
  price.mfu_causal = 3 * (flops.matmul + flops.attention_causal) * all;
  price.mfu_full = 3 * (flops.matmul + flops.attention_full) * all;
  return price;
}

}  // namespace lockstep::cost
