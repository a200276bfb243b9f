#include "lockstep/search/finalists.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "lockstep/cost/compute_time.h"
#include "lockstep/cost/stage_split.h"
#include "lockstep/schedule/catalog.h"
#include "lockstep/search/layout_of.h"
#include "lockstep/sim/stage_sim.h"

namespace lockstep::search {
namespace {

using cost::PriceRequest;
using cost::StepTime;

constexpr double kMostPasses = 1 << 16;  // forward passes of one simulation

constexpr double kTold = 0.002;  // relative difference of two times that counts

// Axes in use besides data, which every layout has; those of experts and context weigh more.
int axes_of(const PriceRequest& r) {
  return (r.tp > 1 ? 1 : 0) + (r.pp > 1 ? 1 : 0) + (r.cp > 1 ? 2 : 0) + (r.ep > 1 ? 2 : 0) +
         (r.etp > 1 ? 2 : 0);
}

// One microbatch through one layer. Communication that nothing hides is spread as computation is.
struct LayerPass {
  double forward = 0, backward = 0;
};

LayerPass layer_pass(PriceRequest r) {
  r.dp *= r.pp, r.pp = 1, r.chunks = 1, r.pipe = cost::Pipe::k1f1b, r.dp_shard = 0;
  const StepTime time = cost::price_time(r);
  const double passes = r.microbatches() * r.shape->layers;
  const double all =
      time.forward + time.backward + time.recompute + time.tensor + time.context + time.expert;
  const double share = time.forward / std::max(1e-300, time.forward + time.backward);
  const double exchanged = time.tensor + time.context + time.expert;
  const double forward = time.forward + share * exchanged;
  return {forward / passes, (all - forward) / passes};
}

// Layers of each stage, in the order of stages; the sum is that of the model.
std::vector<double> stage_layers(const PriceRequest& r, int stages) {
  const double layers = r.shape->layers, most = std::ceil(layers / stages);
  std::vector<double> found(static_cast<std::size_t>(stages), most);
  double extra = most * stages - layers;
  if (extra > 0) found.back() -= 1, extra -= 1;
  if (extra > 0) found.front() -= 1, extra -= 1;
  for (std::size_t i = found.size() - 2; extra > 0 && i > 0; --i, --extra) found[i] -= 1;
  return found;
}

sim::StageCosts stage_costs(const PriceRequest& r, const StepTime& time) {
  const int stages = static_cast<int>(r.pp * r.chunks);
  const LayerPass layer = layer_pass(r);
  const cost::ComputeTime head = cost::head_compute(r);
  sim::StageCosts costs;
  for (const double layers : stage_layers(r, stages)) {
    costs.forward.push_back({layers * layer.forward});
    costs.input_grad.push_back({layers * layer.backward / 2});
    costs.weight_grad.push_back({layers * layer.backward / 2});
  }
  costs.forward.back() += Seconds{head.forward};
  costs.input_grad.back() += Seconds{head.backward / 2};
  costs.weight_grad.back() += Seconds{head.backward / 2};
  // The price of all hops of a step, each way, back to one of them: those it could not hide.
  const double hops = 2 * (r.chunks > 1 ? r.pp - 1 : r.microbatches() * r.chunks + r.pp - 1);
  costs.hop = Seconds{time.pipe / std::max(1.0, hops)};
  return costs;
}

}  // namespace

Finalist simulate(const Priced& walked) {
  const PriceRequest& r = walked.request;
  const StepTime& time = walked.price.time;
  Finalist found{.priced = walked, .seconds = time.total(), .bubble = time.bubble + time.pipe};
  const auto row = schedule::find(schedule_name(r.pipe));
  if (r.pp <= 1 || !row.ok()) return found;
  const double stages = r.pp * r.chunks, all = r.microbatches();
  const double shown =
      std::min(all, std::max(4, static_cast<int>(kMostPasses / stages / r.pp)) * r.pp);
  const auto built = row->build({.coords = static_cast<int>(r.pp),
                                 .chunks = static_cast<int>(r.chunks),
                                 .microbatches = static_cast<int>(shown)});
  if (!built.ok()) return found;
  const sim::StageTimes times = sim::simulate_stages(*built, stage_costs(r, time));
  const double work = times.work.value, more = work / shown * (all - shown);
  const double factor = 1 + time.spread / std::max(1e-300, time.total() - time.spread);
  found.bubble = times.makespan.value - work;
  found.seconds = (times.makespan.value + more + time.data + time.optimizer) * factor;
  found.simulated = true;
  return found;
}

std::vector<Finalist> simulate(std::span<const Priced> walked) {
  std::vector<Finalist> found;
  for (const Priced& one : walked) found.push_back(simulate(one));
  std::ranges::stable_sort(found, {}, [](const Finalist& one) {
    return std::tuple(std::floor(std::log(one.seconds) / kTold), axes_of(one.priced.request),
                      one.seconds);
  });
  return found;
}

}  // namespace lockstep::search
