#include <algorithm>
#include <cmath>

#include "lockstep/cost/collective_time.h"
#include "lockstep/cost/compute_time.h"
#include "lockstep/cost/peak_memory.h"
#include "lockstep/cost/price.h"
#include "lockstep/cost/stage_split.h"

namespace lockstep::cost {
namespace {

using cluster::Term;

// What one layer takes for one microbatch, communication that computation does not hide included.
struct LayerTime {
  ComputeTime compute;
  double tensor_forward = 0, tensor_backward = 0, context = 0, expert = 0;
  double forward() const { return compute.forward + tensor_forward + context / 3 + expert / 2; }
  double backward() const {
    return compute.backward + compute.recompute + tensor_backward + context * 2 / 3 + expert / 2;
  }
};

struct Pricing {
  const PriceRequest& r;
  Fabric fabric;
  explicit Pricing(const PriceRequest& request)
      : r(request), fabric{request.cluster, request.rates, 1} {}
  double rate(Term term) const { return (*r.rates)[term]; }
  // The slowest of k equal passes takes sqrt(2 ln k) deviations longer than their mean (extreme values).
  double wait_share(double ranks) const {
    return r.stack.jitter * std::sqrt(2 * std::log(std::max(1.0, ranks)));
  }
  double stride_of_data() const {
    return r.placement == Placement::kDataInside ? r.tp : r.tp * r.pp;
  }
  double stride_of_pipe() const {
    return r.placement == Placement::kDataInside ? r.tp * r.cp * r.dp : r.tp * r.cp;
  }
};

// Two all_reduces of the hidden state forward, two backward and, where a block is made again, two more;
// with sequence parallelism a gather and a scatter each, the same bytes. Inputs are then kept in shards and gathered
// once more for the weights' gradients, under those of the inputs (Korthikanti et al., section 4.2.2).
void add_tensor(const Pricing& p, bool expert_layer, LayerTime& layer) {
  const PriceRequest& r = p.r;
  if (r.tp <= 1) return;
  const double bytes = 2 * r.tokens() * r.shape->hidden;
  const double one = reduce_seconds(p.fabric, bytes, {r.tp, 1});
  // Chunks of a product hide chunks of a collective only where devices write to each other's memory.
  const bool is_inside = nodes_of(p.fabric, {r.tp, 1}) <= 1;
  const double exposed = r.stack.overlap_tensor && is_inside ? 1 - p.rate(Term::kTensorHidden) : 1;
  // Experts that are not cut by etp exchange tokens instead of summing their outputs.
  const double parts = expert_layer && r.etp <= 1 ? 1 : 2;
  const double wait = p.wait_share(r.tp);
  layer.tensor_forward = parts * one * exposed + wait * layer.compute.forward;
  const double regathers = r.sp && !r.stack.overlap_regather ? 0.5 : 0;
  layer.tensor_backward = parts * one * (exposed * (r.keep == Keep::kInput ? 2 : 1) + regathers) +
                          wait * (layer.compute.backward + layer.compute.recompute);
}

// Bytes of one rank's keys and values; more tensor ranks than heads of keys each hold one.
double keys_and_values(const PriceRequest& r) {
  return 4 * std::max(r.shape->k(), r.tp * r.shape->qk_dim) * r.tokens() / r.tp;
}

// c - 1 hops of keys and values forward, backward these again and their gradients; a hop hides under a block of
// attention, but for the first. Ranks meet at every hop.
double ring_exposed(const Pricing& p) {
  const PriceRequest& r = p.r;
  const double hop = hop_seconds(p.fabric, keys_and_values(r), r.tp * (r.cp - 1));
  const ComputeTime attention = attention_compute(r);
  const double forward = std::max(0.0, hop - attention.forward / r.cp);
  const double backward = std::max(0.0, 2 * hop - attention.backward / r.cp);
  return hop * 3 + (r.cp - 2) * (forward + backward) +
         p.wait_share(2) * (attention.forward + attention.backward);
}

// One gather forward; backward one more and the sum of the gradients. Nothing hides them.
double gather_exposed(const Pricing& p) {
  const PriceRequest& r = p.r;
  return 3 * gather_seconds(p.fabric, keys_and_values(r) * r.cp, {r.cp, r.tp});
}

// Queries, keys and values to the ranks of their heads and outputs back, forward and backward; keys are copied
// where ranks outnumber their heads.
double ulysses_exposed(const Pricing& p) {
  const PriceRequest& r = p.r;
  const ModelShape& s = *r.shape;
  const double keys = std::max(s.k(), r.tp * r.cp * s.qk_dim);
  const double bytes = 2 * (s.q() + s.values() + 2 * keys) * r.tokens() / r.tp;
  return 2 * exchange_seconds(p.fabric, bytes, {r.cp, r.tp});
}

void add_context(const Pricing& p, LayerTime& layer) {
  if (p.r.cp <= 1) return;
  switch (p.r.context) {
    case ContextWay::kRing:
      layer.context = ring_exposed(p);
      break;
    case ContextWay::kGather:
      layer.context = gather_exposed(p);
      break;
    case ContextWay::kUlysses:
      layer.context = ulysses_exposed(p);
      break;
  }
}

// Dispatch and combination, forward and backward: K tokens of h in 16 bits each.
void add_expert(const Pricing& p, LayerTime& layer) {
  const PriceRequest& r = p.r;
  const double bytes = 2 * r.shape->top_k * r.tokens() / r.tp * r.shape->hidden;
  const Members group{r.ep, r.etp};
  // Between nodes a token is sent once per distinct node: n (1 - (1 - 1/n)^K) of n on average.
  const double nodes = nodes_of(p.fabric, group), k = r.shape->top_k;
  double distinct = nodes * (1 - std::pow(1 - 1 / nodes, k));
  if (r.shape->routed_nodes > 0) distinct = std::min(distinct, r.shape->routed_nodes);
  if (r.ep > 1) layer.expert += 4 * exchange_seconds(p.fabric, bytes, group, distinct / k);
  if (r.etp > 1) layer.expert += 4 * gather_seconds(p.fabric, bytes * r.etp, {r.etp, 1});
  if (r.keep == Keep::kInput) layer.expert *= 1.5;
}

// A layer's passes never end before the host has launched them; backward passes launch about twice as many
// kernels, from a queue that needs no interpreter.
void raise_to_host(const Pricing& p, LayerTime& layer) {
  // A ring launches attention once for each of its ranks; a tenth of a layer's kernels are attention's.
  const double rounds = p.r.context == ContextWay::kRing ? p.r.cp - 1 : 0;
  const double host = p.rate(Term::kHost) * p.r.stack.host_factor * (1 + 0.1 * rounds);
  const double forward = layer.forward(), backward = layer.backward();
  layer.compute.forward += std::max(0.0, host - forward);
  const double again = p.r.keep == Keep::kInput ? host : 0;
  layer.compute.backward += std::max(0.0, host + again - backward);
}

ComputeTime with_gaps(const PriceRequest& r, const ComputeTime& time) {
  const double longer = 1 + r.stack.gaps;
  return {time.forward * longer, time.backward * longer, time.recompute * longer};
}

LayerTime layer_time(const Pricing& p, bool expert_layer) {
  LayerTime layer;
  layer.compute = with_gaps(p.r, layer_compute(p.r, expert_layer));
  add_tensor(p, expert_layer, layer);
  add_context(p, layer);
  if (expert_layer) add_expert(p, layer);
  raise_to_host(p, layer);
  return layer;
}

// Layers of the two kinds that a pipeline rank has.
struct Stage {
  double plain = 0, experts = 0, head = 0;
};

double overlapped(double compute, double communication, double tax) {
  return std::max(compute, communication) + tax * std::min(compute, communication);
}

struct Parameters {
  double dense = 0, expert = 0;  // of one rank, before sharding over data
};

Parameters busiest_parameters(const PriceRequest& r) {
  Parameters most;
  for (const double stage : {0.0, 1.0, r.pp - 1}) {
    if (stage > r.pp - 1) continue;
    const PartParams params = stage_params(r, stage);
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
  time.spread = p.wait_share(2) * (time.forward + time.backward + time.recompute + time.head);
}

}  // namespace

StepTime price_time(const PriceRequest& r) {
  const Pricing p(r);
  const ModelShape& s = *r.shape;
  const StageSplit split = split_layers(r);
  const LayerTime plain = s.plain_layers() > 0 ? layer_time(p, false) : LayerTime{};
  const LayerTime routed = s.has_experts() ? layer_time(p, true) : LayerTime{};
  const ComputeTime head = with_gaps(r, head_compute(r));
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
  const Parameters own = busiest_parameters(r);
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
