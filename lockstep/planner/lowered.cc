#include "lockstep/planner/lowered.h"

#include <algorithm>

#include "lockstep/cost/analytic/collective_time.h"
#include "lockstep/cost/analytic/compute_time.h"
#include "lockstep/cost/analytic/peak_memory.h"
#include "lockstep/cost/analytic/stage_split.h"
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
using program::OpKind;

constexpr std::size_t kLowered = 3;  // finalists

// What the ops of one unit take besides its passes.
struct UnitTimes {
  double gather = 0, reduce = 0, reduce_across = 0, update = 0;
};

// Volumes as cost/analytic/step_time.cc has them, a unit at a time.
class UnitPrices {
 public:
  UnitPrices(const PriceRequest& r, const PassTimes& passes)
      : r_(r), passes_(passes), fabric_{r.cluster, r.rates} {
    const cost::ModelShape& s = *r.shape;
    const double share = s.expert_layers() / s.layers;
    PartParams block = plain_layer_params(s) * (1 - share);
    if (share > 0) block += expert_layer_params(s) * share;
    block_ = unit(block);
    embedding_ = unit(embedding_params(s));
    PartParams head = head_params(s);
    const bool shares_embedding = s.tied && cost::holds_head(r, 0);
    if (shares_embedding) head.tensor = 0;
    head_ = unit(head);
    if (s.tied && !shares_embedding)
      tied_ = reduce_seconds(fabric_, head.tensor / r.tp * r.stack.reduce_bytes,
                             {2, r.pipe_stride() * (r.pp - 1)});
    norm_ = reduce_seconds(fabric_, 8, {r.devices(), 1});
    const double bytes = 2 * r.tokens() * s.hidden / r.tp;
    send_ = r.pp > 1 ? std::min(hop_seconds(fabric_, bytes, r.pipe_stride()), passes.hop) : 0;
  }

  double time(const Op& op, int last) const {
    const bool is_block = op.unit > 0 && op.unit < last;
    const UnitTimes& other = is_block ? block_ : op.unit == 0 ? embedding_ : head_;
    const double backward = is_block ? passes_.backward : op.unit == 0 ? 0 : passes_.head_backward;
    switch (op.kind) {
      case OpKind::kForward:
        return is_block ? passes_.forward : op.unit == 0 ? 0 : passes_.head_forward;
      case OpKind::kRecompute:
        return passes_.again;
      case OpKind::kBackward:
        return backward;
      case OpKind::kInputGrad:
      case OpKind::kWeightGrad:
        return backward / 2;
      case OpKind::kSend:
        return send_;
      case OpKind::kGather:
      case OpKind::kPublish:
        return other.gather;
      case OpKind::kReduce:
        return other.reduce;
      case OpKind::kReduceAcross:
        return other.reduce_across;
      case OpKind::kUpdate:
        return other.update;
      case OpKind::kReduceTied:
        return tied_;
      case OpKind::kNorm:
        return norm_;
      default:
        return 0;
    }
  }
  // What a hop takes besides moving: waiting for a neighbour.
  double latency() const { return passes_.hop - send_; }

 private:
  UnitTimes unit(const PartParams& params) const {
    const auto [dense, expert] = on_rank(r_, params);
    const cost::Members shards{r_.shard_group(), r_.data_stride()};
    const cost::Members experts{r_.expert_copies(), r_.expert_stride()};
    const auto gather = [&](double bytes) {
      return gather_seconds(fabric_, dense * bytes, shards) +
             gather_seconds(fabric_, expert * bytes, experts);
    };
    UnitTimes times;
    times.gather = gather(2);
    times.reduce = gather(r_.stack.reduce_bytes) * (r_.zero == 0 ? 2 : 1);
    times.reduce_across =
        reduce_seconds(fabric_, dense * r_.stack.reduce_bytes / r_.shard_group(),
                       {r_.dp * r_.cp / r_.shard_group(), r_.data_stride() * r_.shard_group()});
    times.update = cost::optimizer_seconds(
        r_, r_.zero >= 1 ? dense / r_.shard_group() + expert / r_.expert_copies() : dense + expert);
    return times;
  }

  const PriceRequest& r_;
  const PassTimes& passes_;
  const cost::Fabric fabric_;
  UnitTimes block_, embedding_, head_;
  double tied_ = 0, norm_ = 0, send_ = 0;
};

class Lowered {
 public:
  explicit Lowered(const Finalist& finalist)
      : r_(finalist.priced.request), passes_(pass_times(r_)), prices_(r_, passes_) {
    const Stages stages = stages_of(finalist);
    step_.stage_begin = spec::first_units(stages.layers);
    step_.zero = r_.zero;
    step_.period = spec::default_reduce(r_.zero);
    step_.replicas = r_.shard_group() < r_.dp * r_.cp;
    step_.tied = r_.shape->tied;
    if (r_.keep == cost::Keep::kInput)
      step_.recompute = spec::recomputed_units(step_.stage_begin, stages.recomputed);
  }

  int units() const { return step_.units(); }

  // Of a step with so many microbatches.
  std::optional<double> seconds(int microbatches) const {
    const auto built = r_.schedule->build({count_of(r_.pp), count_of(r_.chunks), microbatches});
    if (!built.ok()) return std::nullopt;
    const auto program = program::lower(*built, step_);
    if (!program.ok()) return std::nullopt;
    const int last = units() - 1;
    sim::Conditions conditions;
    conditions.latency = [this](Coord, const Op&) { return Seconds{prices_.latency()}; };
    // Computation that an exchange of X seconds runs beside loses tax X: step_time.cc's rule.
    conditions.slowdown.compute = 1 / (1 - (*r_.rates)[cluster::Term::kOverlapTax]);
    const auto timed = sim::simulate(
        *program, [&](Coord, const Op& op) { return Seconds{prices_.time(op, last)}; }, conditions);
    return timed.ok() ? std::optional(timed->makespan.value) : std::nullopt;
  }

 private:
  const PriceRequest& r_;
  const PassTimes passes_;
  const UnitPrices prices_;
  program::StepShape step_;
};

}  // namespace

std::optional<double> lowered_seconds(const Finalist& finalist, int most) {
  const PriceRequest& r = finalist.priced.request;
  const Lowered lowered(finalist);
  const int all = count_of(r.microbatches()), pp = count_of(r.pp);
  // Every schedule takes multiples of pp from twice that on.
  const int shorter = pp * std::max(2, most / lowered.units() / pp), longer = shorter + pp;
  std::optional<double> seconds = lowered.seconds(std::min(all, longer));
  if (!seconds) return seconds;
  if (all > longer) {
    const std::optional<double> before = lowered.seconds(shorter);
    if (!before) return before;
    *seconds += (*seconds - *before) / pp * (all - longer);
  }
  return *seconds * slower_devices(finalist.priced.price.time);
}

void time_by_units(std::span<Finalist> finalists) {
  for (Finalist& one : finalists.first(std::min(kLowered, finalists.size())))
    one.by_units = lowered_seconds(one);
}

}  // namespace lockstep::planner
