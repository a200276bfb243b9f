#include "lockstep/search/finalists.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "lockstep/schedule/catalog.h"
#include "lockstep/search/layout_of.h"
#include "lockstep/search/pass_times.h"
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

sim::StageCosts stage_costs(const PassTimes& times, std::span<const int> split) {
  sim::StageCosts costs;
  for (const int layers : split) {
    costs.forward.push_back({layers * times.forward});
    costs.input_grad.push_back({layers * times.backward / 2});
    costs.weight_grad.push_back({layers * times.backward / 2});
  }
  costs.forward.back() += Seconds{times.head_forward};
  costs.input_grad.back() += Seconds{times.head_backward / 2};
  costs.weight_grad.back() += Seconds{times.head_backward / 2};
  costs.hop = Seconds{times.hop};
  return costs;
}

}  // namespace

double slower_devices(const StepTime& time) {
  return 1 + time.spread / std::max(1e-300, time.total() - time.spread);
}

Finalist simulate(const Priced& walked, const StageLayers& given) {
  const PriceRequest& r = walked.request;
  const StepTime& time = walked.price.time;
  Finalist found{.priced = walked, .seconds = time.total(), .bubble = time.bubble + time.pipe};
  const auto row = schedule::find(schedule_name(r.pipe));
  if (r.pp <= 1 || !row.ok()) return found;
  const double stages = r.pp * r.chunks, all = r.microbatches();
  const double shown =
      std::min(all, std::max(4, static_cast<int>(kMostPasses / stages / r.pp)) * r.pp);
  const auto built = row->build({count_of(r.pp), count_of(r.chunks), count_of(shown)});
  if (!built.ok()) return found;
  const PassTimes passes = pass_times(r, time);
  const StageLayers split = given.empty() ? best_layers(r, passes) : given;
  const sim::StageTimes times = sim::simulate_stages(*built, stage_costs(passes, split));
  const double work = times.work.value, more = work / shown * (all - shown);
  found.bubble = times.makespan.value - work;
  found.seconds = (times.makespan.value + more + time.data + time.optimizer) * slower_devices(time);
  found.simulated = true;
  if (split != dealt_layers(count_of(r.shape->layers), count_of(stages))) found.layers = split;
  if (r.chunks > 1) return found;
  cost::Price& price = found.priced.price;
  price.memory = fullest_rank(r, split);
  price.fits = cost::device_bytes(price.memory) <= price.usable;
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
