#include "lockstep/planner/lowered.h"

#include <algorithm>

#include "lockstep/cost/analytic/compute_time.h"
#include "lockstep/cost/analytic/peak_memory.h"
#include "lockstep/cost/analytic/stage_split.h"
#include "lockstep/cost/op_cost.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/planner/layout_of.h"
#include "lockstep/program/lower.h"
#include "lockstep/sim/simulator.h"
#include "lockstep/spec/step.h"

namespace lockstep::planner {
namespace {

using cost::PartParams;
using cost::PriceRequest;
using program::Op;

constexpr std::size_t kLowered = 3;  // finalists

// Seconds of the ops of a unit besides its passes. Volumes as cost/analytic/step_time.cc has them.
cost::UnitTimes unit_times(const PriceRequest& r, const PartParams& params) {
  const cost::Fabric fabric = r.fabric();
  const auto [dense, expert] = on_rank(r, params);
  const cost::Members shards{r.shard_group(), r.data_stride()};
  const cost::Members experts{r.expert_copies(), r.expert_stride()};
  const auto gather = [&](double bytes) {
    return gather_seconds(fabric, dense * bytes, shards) +
           gather_seconds(fabric, expert * bytes, experts);
  };
  cost::UnitTimes times;
  times.gather = {gather(2)};
  times.reduce = {gather(r.stack.reduce_bytes) * (r.zero == 0 ? 2 : 1)};
  times.reduce_across = {
      reduce_seconds(fabric, dense * r.stack.reduce_bytes / r.shard_group(),
                     {r.dp * r.cp / r.shard_group(), r.data_stride() * r.shard_group()})};
  times.update = {cost::optimizer_seconds(
      r, r.zero >= 1 ? dense / r.shard_group() + expert / r.expert_copies() : dense + expert)};
  return times;
}

cost::OpTimes op_times(const PriceRequest& r, const PassTimes& passes) {
  const cost::Fabric fabric = r.fabric();
  const cost::ModelShape& s = *r.shape;
  const double share = s.expert_layers() / s.layers;
  PartParams block = plain_layer_params(s, r.tp) * (1 - share);
  if (share > 0) block += expert_layer_params(s, r.tp) * share;
  cost::UnitTimes layer = unit_times(r, block);
  layer.forward = {passes.forward};
  layer.recompute = {passes.again};
  layer.input_grad = layer.weight_grad = {passes.backward / 2};
  PartParams head_part = head_params(s);
  const bool shares_embedding = s.tied && cost::holds_head(r, 0);
  if (shares_embedding) head_part.tensor = 0;
  cost::UnitTimes head = unit_times(r, head_part);
  head.forward = {passes.head_forward};
  head.input_grad = head.weight_grad = {passes.head_backward / 2};

  cost::OpTimes times;
  times.units.assign(static_cast<std::size_t>(s.layers) + 2, layer);
  times.units.front() = unit_times(r, embedding_params(s));
  times.units.back() = head;
  if (s.tied && !shares_embedding)
    times.tied = {reduce_seconds(fabric, head_part.tensor / r.tp * r.stack.reduce_bytes,
                                 {2, r.pipe_stride() * (r.pp - 1)})};
  times.norm = {reduce_seconds(fabric, 8, {r.devices(), 1})};
  const double bytes = 2 * r.tokens() * s.hidden / r.tp;
  if (r.pp > 1) times.send = {std::min(hop_seconds(fabric, bytes, r.pipe_stride()), passes.hop)};
  return times;
}

class Lowered {
 public:
  explicit Lowered(const Finalist& finalist)
      : r_(finalist.priced.request), passes_(pass_times(r_)), times_(op_times(r_, passes_)) {
    const Stages stages = stages_of(finalist);
    step_.stage_begin = program::first_units(stages.layers);
    step_.zero = r_.zero;
    step_.period = spec::default_reduce(r_.zero);
    step_.replicas = r_.shard_group() < r_.dp * r_.cp;
    step_.tied = r_.shape->tied;
    if (r_.drop.block)
      step_.recompute = spec::recomputed_units(step_.stage_begin, stages.recomputed);
  }

  int units() const { return step_.units(); }

  // Of a step with so many microbatches.
  std::optional<double> seconds(int microbatches) const {
    const auto built = r_.schedule->build({r_.pp, r_.chunks, microbatches});
    if (!built.ok()) return std::nullopt;
    const auto program = program::lower(*built, step_);
    if (!program.ok()) return std::nullopt;
    sim::Conditions conditions;
    // What a hop takes besides moving: waiting for a neighbour.
    conditions.latency = [this](Coord, const Op&) { return Seconds{passes_.hop} - times_.send; };
    // Computation that an exchange of X seconds runs beside loses tax X: step_time.cc's rule.
    conditions.slowdown.compute = 1 / (1 - r_.rate(cluster::Term::kOverlapTax));
    const auto timed =
        sim::simulate(*program, [&](Coord, const Op& op) { return times_.time(op); }, conditions);
    return timed.ok() ? std::optional(timed->makespan.value) : std::nullopt;
  }

 private:
  const PriceRequest& r_;
  const PassTimes passes_;
  const cost::OpTimes times_;
  program::StepShape step_;
};

}  // namespace

std::optional<double> lowered_seconds(const Finalist& finalist, int most) {
  const PriceRequest& r = finalist.priced.request;
  const Lowered lowered(finalist);
  const std::int64_t all = r.microbatches();
  const int pp = r.pp;
  // Every schedule takes multiples of pp from twice that on.
  const int shorter = pp * std::max(2, most / lowered.units() / pp), longer = shorter + pp;
  std::optional<double> seconds =
      lowered.seconds(static_cast<int>(std::min<std::int64_t>(all, longer)));
  if (!seconds) return seconds;
  if (all > longer) {
    const std::optional<double> before = lowered.seconds(shorter);
    if (!before) return before;
    *seconds += (*seconds - *before) / pp * static_cast<double>(all - longer);
  }
  return *seconds * slower_devices(finalist.priced.price.time);
}

void time_by_units(std::span<Finalist> finalists) {
  for (Finalist& one : finalists.first(std::min(kLowered, finalists.size())))
    one.by_units = lowered_seconds(one);
}

}  // namespace lockstep::planner
