#include "lockstep/planner/finalists.h"

#include <algorithm>
#include <cmath>

#include "lockstep/cost/analytic/stage_split.h"
#include "lockstep/planner/stage_layers.h"
#include "lockstep/planner/step_quantiles.h"

namespace lockstep::planner {
namespace {

using cost::PriceRequest;
using cost::StepTime;

constexpr int kMostPasses = 1 << 16;  // forward passes of one simulation

// Axes in use besides data, which every layout has; those of experts and context weigh more.
int axes_of(const PriceRequest& r) {
  return (r.tp > 1 ? 1 : 0) + (r.pp > 1 ? 1 : 0) + (r.cp > 1 ? 2 : 0) + (r.ep > 1 ? 2 : 0) +
         (r.etp > 1 ? 2 : 0);
}

sim::StageCosts stage_costs(const PassTimes& times, const Stages& stages) {
  sim::StageCosts costs;
  for (std::size_t i = 0; i < stages.layers.size(); ++i) {
    const double backward = stages.layers[i] * times.backward + stages.recomputed[i] * times.again;
    costs.forward.push_back({stages.layers[i] * times.forward});
    costs.input_grad.push_back({backward / 2});
    costs.weight_grad.push_back({backward / 2});
  }
  costs.forward.back() += Seconds{times.head_forward};
  costs.input_grad.back() += Seconds{times.head_backward / 2};
  costs.weight_grad.back() += Seconds{times.head_backward / 2};
  costs.hop = Seconds{times.hop};
  return costs;
}

// REQUIRES: chunks = 1.
std::size_t busiest_rank(const PassTimes& times, const Stages& stages) {
  const std::size_t last = stages.layers.size() - 1;
  const auto seconds = [&](std::size_t i) {
    return times.stage(stages.layers[i], stages.recomputed[i], i == last);
  };
  std::size_t busiest = 0;
  for (std::size_t i = 1; i <= last; ++i)
    if (seconds(i) > seconds(busiest)) busiest = i;
  return busiest;
}

// A price's terms are of the busiest rank, and suppose that every rank makes as many blocks again.
// Where they do not, the price gets the number of the busiest, and the head only where that has it;
// the request gets the most of all.
void price_again(const PassTimes& times, const Stages& stages, Priced& priced) {
  if (priced.request.recomputed == 0) return;
  if (priced.request.chunks > 1) {
    const int most = most_recomputed(priced.request, stages.recomputed);
    if (priced.request.stack.recompute_count == cost::RecomputeCount::kEachStage ||
        most == priced.request.recomputed)
      return;
    priced.request.set_recomputed(most);
    priced.price = cost::price(priced.request);
    return;
  }
  const std::size_t busiest = busiest_rank(times, stages);
  PriceRequest its = priced.request;
  its.set_recomputed(stages.recomputed[busiest]);
  priced.request.set_recomputed(std::ranges::max(stages.recomputed));
  priced.price.time = cost::price_time(its);
  if (busiest + 1 < stages.layers.size()) priced.price.time.head = 0;
}

// The first rank starts and ends a step, so what it cannot hide comes on top of the pipeline,
// whoever is busiest.
double exposed_data(const PriceRequest& r, const PassTimes& times, const Stages& stages) {
  const bool one_each = r.chunks <= 1;
  const double layers = one_each ? stages.layers[0] : cost::split_layers(r).first;
  const double recomputed = one_each ? stages.recomputed[0] : cost::recomputed_share(r) * layers;
  return cost::once_exposed_seconds(
      r, {layers * times.forward, layers * times.backward + recomputed * times.again}, layers);
}

// Terms of a step in which the busiest rank works and waits for so long; rates follow.
void retime(const PriceRequest& r, double work, double idle, cost::Price& price) {
  StepTime& time = price.time;
  const double before = r.step_tokens() / price.tokens_per_s;
  std::vector<double*> busy = {&time.forward, &time.backward, &time.recompute, &time.head,
                               &time.tensor,  &time.context,  &time.expert};
  if (r.zero >= 3) busy.push_back(&time.data);  // in every pass
  double worked = 0;
  for (const double* term : busy) worked += *term;
  for (double* term : busy) *term *= work / worked;
  time.pipe = std::min(time.pipe, idle);
  time.bubble = idle - time.pipe;
  time.spread = cost::spread_seconds(r, time);
  for (double* rate : {&price.mfu_causal, &price.mfu_full, &price.tokens_per_s})
    *rate *= before / time.total();
}

}  // namespace

double slower_devices(const StepTime& time) {
  return 1 + time.spread / std::max(1e-300, time.total() - time.spread);
}

Stages stages_of(const Finalist& finalist) {
  return stages_of(finalist.priced.request, finalist.layers, finalist.recomputed);
}

Finalist simulate(const Priced& walked, const Stages& given) {
  Finalist found{.priced = walked};
  const PriceRequest& r = found.priced.request;
  cost::Price& price = found.priced.price;
  found.seconds = found.closed_form = price.time.total();
  found.bubble = price.time.bubble + price.time.pipe;
  const pipeline::CatalogRow& row = *r.schedule;
  if (r.pp <= 1) return found;
  const auto all = static_cast<double>(r.microbatches());
  const int most = std::max(4, kMostPasses / (r.pp * r.chunks) / r.pp) * r.pp;
  const int shown = static_cast<int>(std::min<std::int64_t>(r.microbatches(), most));
  const auto built = row.build({r.pp, r.chunks, shown});
  if (!built.ok()) return found;
  const PassTimes passes = sharded_pass_times(r);
  const Stages stages = given.layers.empty() ? best_stages(r, passes) : given;
  price_again(passes, stages, found.priced);
  const sim::StageTimes times = sim::simulate_stages(*built, stage_costs(passes, stages));
  const double work = times.work.value;
  if (r.zero < 3) price.time.data = exposed_data(r, passes, stages);
  retime(r, work / shown * all, times.makespan.value - work, price);
  found.seconds = price.time.total();
  found.bubble = price.time.bubble + price.time.pipe;
  found.simulated = true;
  if (stages.layers != default_layer_split(r)) found.layers = stages.layers;
  if (r.recomputed > 0) found.recomputed = stages.recomputed;
  if (r.chunks > 1) return found;
  price.memory = fullest_rank(r, stages);
  price.fits = cost::device_bytes(price.memory) <= price.usable;
  return found;
}

std::vector<Finalist> simulate(std::span<const Priced> walked) {
  std::vector<Finalist> found;
  for (const Priced& one : walked) found.push_back(simulate(one));
  rank(found);
  return found;
}

std::optional<TimedPasses> timed_passes(const Finalist& finalist, int microbatches) {
  const PriceRequest& r = finalist.priced.request;
  if (r.pp <= 1) return std::nullopt;
  auto built = r.schedule->build(
      {r.pp, r.chunks, std::min(microbatches, static_cast<int>(r.microbatches()))});
  if (!built.ok()) return std::nullopt;
  sim::StageTimes times =
      sim::simulate_stages(*built, stage_costs(sharded_pass_times(r), stages_of(finalist)));
  return TimedPasses{*std::move(built), std::move(times)};
}

Stages given_stages(const Question& question, const PriceRequest& request) {
  const Given& given = question.given;
  return given.layers.empty() ? Stages{} : stages_of(request, given.layers, given.blocks);
}

void rank(std::vector<Finalist>& finalists) {
  if (finalists.empty()) return;
  std::ranges::stable_sort(finalists, {}, &Finalist::seconds);
  const double limit = finalists.front().seconds * (1 + kTold);
  const auto end = std::ranges::upper_bound(finalists, limit, {}, &Finalist::seconds);
  const auto choice = std::min_element(finalists.begin(), end, [](const auto& a, const auto& b) {
    return axes_of(a.priced.request) < axes_of(b.priced.request);
  });
  std::rotate(finalists.begin(), choice, choice + 1);
}

bool is_tied(const Finalist& a, const Finalist& b) {
  const double error = published_errors(a.priced.request.rates->calibrated).median / 100;
  return std::abs(std::log(a.seconds / b.seconds)) <= error;
}

}  // namespace lockstep::planner
