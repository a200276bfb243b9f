#include "lockstep/cost/analytic/layer_time.h"

#include <algorithm>
#include <cmath>

namespace lockstep::cost {
namespace {

using cluster::Term;

// Two all_reduces of the hidden state forward, two backward and, where a block is recomputed, two
// more; with sequence parallelism a gather and a scatter each, the same bytes. Inputs are then kept
// in shards and gathered once more for the weights' gradients, under those of the inputs
// (Korthikanti et al., section 4.2.2).
void add_tensor(const PriceRequest& r, bool expert_layer, LayerTime& layer) {
  if (r.tp <= 1) return;
  const double bytes = 2 * r.tokens() * r.shape->hidden;
  const double one = reduce_seconds(r.fabric(), bytes, {r.tp, 1});
  // Chunks of a product hide chunks of a collective only where devices write to each other's
  // memory.
  const bool is_inside = nodes_of(r.fabric(), {r.tp, 1}) <= 1;
  const double exposed = r.stack.overlap_tensor && is_inside ? 1 - r.rate(Term::kTensorHidden) : 1;
  // Experts that are not cut by etp exchange tokens instead of summing their outputs; those that
  // every token meets are cut by tp.
  const bool is_exchanged = expert_layer && r.etp <= 1 && r.shape->shared_ffn == 0;
  const double parts = is_exchanged ? 1 : 2;
  const double wait = wait_share(r, r.tp);
  layer.tensor_forward = parts * one * exposed + wait * layer.compute.forward;
  const double regathers = r.sp && !r.stack.overlap_regather ? 0.5 : 0;
  // A residual that is made again is summed again.
  const double residual = r.drop.middle && r.shape->sums_into_residual() ? one * exposed : 0;
  layer.tensor_backward = parts * one * (exposed * (layer.again ? 2 : 1) + regathers) + residual +
                          wait * (layer.compute.backward + layer.compute.recompute);
}

// Bytes of one rank's keys and values.
double keys_and_values(const PriceRequest& r) { return 4 * r.keys() * r.tokens() / r.tp; }

// c - 1 hops of keys and values forward, backward these again and their gradients; a hop hides
// under a block of attention, but for the first. Ranks meet at every hop.
double ring_exposed(const PriceRequest& r) {
  const double hop = hop_seconds(r.fabric(), keys_and_values(r), r.tp * (r.cp - 1));
  const ComputeTime attention = attention_compute(r);
  const double forward = std::max(0.0, hop - attention.forward / r.cp);
  const double backward = std::max(0.0, 2 * hop - attention.backward / r.cp);
  return hop * 3 + (r.cp - 2) * (forward + backward) +
         wait_share(r, 2) * (attention.forward + attention.backward);
}

// One gather forward; backward one more and the sum of the gradients. Nothing hides them.
double gather_exposed(const PriceRequest& r) {
  return 3 * gather_seconds(r.fabric(), keys_and_values(r) * r.cp, {r.cp, r.tp});
}

// Queries, keys and values to the ranks of their heads and outputs back, forward and backward; keys
// are copied where ranks outnumber their heads.
double ulysses_exposed(const PriceRequest& r) {
  const ModelShape& s = *r.shape;
  const double keys = std::max(s.k(), r.tp * r.cp * s.qk_dim);
  const double bytes = 2 * (s.q() + s.values() + 2 * keys) * r.tokens() / r.tp;
  return 2 * exchange_seconds(r.fabric(), bytes, {r.cp, r.tp});
}

void add_context(const PriceRequest& r, LayerTime& layer) {
  if (r.cp <= 1) return;
  switch (r.context) {
    case model::CpMethod::kRing:
      layer.context = ring_exposed(r);
      break;
    case model::CpMethod::kGather:
      layer.context = gather_exposed(r);
      break;
    case model::CpMethod::kUlysses:
      layer.context = ulysses_exposed(r);
      break;
  }
}

// Dispatch and combination, forward and backward: K tokens of h in 16 bits each.
void add_expert(const PriceRequest& r, LayerTime& layer) {
  const double bytes = 2 * r.shape->top_k * r.tokens() / r.tp * r.shape->hidden;
  const Members group{r.ep, r.etp};
  // Between nodes a token is sent once per distinct node: n (1 - (1 - 1/n)^K) of n on average.
  const double nodes = nodes_of(r.fabric(), group), k = r.shape->top_k;
  double distinct = nodes * (1 - std::pow(1 - 1 / nodes, k));
  if (r.shape->routed_nodes > 0) distinct = std::min(distinct, r.shape->routed_nodes);
  if (r.ep > 1) layer.expert += 4 * exchange_seconds(r.fabric(), bytes, group, distinct / k);
  if (r.etp > 1) layer.expert += 4 * gather_seconds(r.fabric(), bytes * r.etp, {r.etp, 1});
  if (r.stack.narrow_dispatch && r.precision == Precision::kFp8) layer.expert *= 0.75;
  if (layer.again) layer.expert *= 1.5;
  if (!r.stack.overlap_expert) return;
  // DeepSeek-V3 (arXiv 2412.19437), sections 3.2.1 and 3.5.1: a forward pass and a backward pass of
  // another microbatch hide each other's exchanges, which run on 20 of 132 processors. What fills
  // and drains the pipeline has no partner, and is taken to have one.
  constexpr double kOfProcessors = 20.0 / 132;
  const ComputeTime& compute = layer.compute;
  const double beside = compute.forward + compute.backward + compute.recompute;
  layer.expert =
      std::max(0.0, layer.expert - beside) + kOfProcessors * std::min(layer.expert, beside);
}

// A layer's passes never end before the host has launched them; backward passes launch about twice
// as many kernels, from a queue that needs no interpreter.
void raise_to_host(const PriceRequest& r, LayerTime& layer) {
  // A ring launches attention once for each of its ranks; a tenth of a layer's kernels are
  // attention's.
  const double rounds = r.context == model::CpMethod::kRing ? r.cp - 1 : 0;
  const double host = r.rate(Term::kHost) * r.stack.host_factor * (1 + 0.1 * rounds);
  const double forward = layer.forward(), backward = layer.backward();
  layer.compute.forward += std::max(0.0, host - forward);
  const double again = layer.again ? host : 0;
  layer.compute.backward += std::max(0.0, host + again - backward);
}

ComputeTime with_gaps(const PriceRequest& r, const ComputeTime& time) {
  const double longer = 1 + r.stack.gaps;
  return {time.forward * longer, time.backward * longer, time.recompute * longer};
}

LayerTime layer_time(const PriceRequest& r, bool expert_layer, const ComputeTime& compute,
                     bool again) {
  LayerTime layer{.compute = with_gaps(r, compute), .again = again};
  add_tensor(r, expert_layer, layer);
  add_context(r, layer);
  if (expert_layer) add_expert(r, layer);
  raise_to_host(r, layer);
  return layer;
}

void add_kind(const PriceRequest& r, bool expert_layer, LayerTime& made, LayerTime& others) {
  ComputeTime compute = layer_compute(r, expert_layer);
  if (r.recomputed > 0) others = layer_time(r, expert_layer, compute, false);
  // A block that is recomputed drops what others drop, and recomputes that too.
  if (r.drop.block) compute.recompute += compute.forward;
  made = layer_time(r, expert_layer, compute, r.drop.block);
}

}  // namespace

LayerTimes layer_times(const PriceRequest& r) {
  LayerTimes times;
  if (r.shape->plain_layers() > 0) add_kind(r, false, times.made.plain, times.others.plain);
  if (r.shape->has_experts()) add_kind(r, true, times.made.routed, times.others.routed);
  times.head = with_gaps(r, head_compute(r));
  return times;
}

LayerTime mean_of(const LayerTime& made, const LayerTime& others, double share) {
  if (share == 1) return made;
  const auto mean = [&](double a, double b) { return share * a + (1 - share) * b; };
  const ComputeTime &a = made.compute, &b = others.compute;
  return {.compute = {mean(a.forward, b.forward), mean(a.backward, b.backward),
                      mean(a.recompute, b.recompute)},
          .tensor_forward = mean(made.tensor_forward, others.tensor_forward),
          .tensor_backward = mean(made.tensor_backward, others.tensor_backward),
          .context = mean(made.context, others.context),
          .expert = mean(made.expert, others.expert)};
}

// The slowest of k equal passes takes sqrt(2 ln k) deviations longer than their mean (extreme
// values).
double wait_share(const PriceRequest& r, int ranks) {
  return r.stack.jitter * std::sqrt(2 * std::log(std::max(1, ranks)));
}

}  // namespace lockstep::cost
