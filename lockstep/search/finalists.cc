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

sim::StageCosts stage_costs(const PassTimes& times, const Stages& stages) {
  sim::StageCosts costs;
  for (std::size_t i = 0; i < stages.layers.size(); ++i) {
    const double backward = stages.layers[i] * times.backward + stages.remade[i] * times.again;
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
    return times.stage(stages.layers[i], stages.remade[i], i == last);
  };
  std::size_t busiest = 0;
  for (std::size_t i = 1; i <= last; ++i)
    if (seconds(i) > seconds(busiest)) busiest = i;
  return busiest;
}

// A price's terms are of the busiest rank, and suppose that every rank makes as many blocks again. Where they do not,
// the price gets the number of the busiest, and the head only where that has it; the request gets the most of all.
void price_again(const PassTimes& times, const Stages& stages, Priced& priced) {
  if (priced.request.remade == 0 || priced.request.chunks > 1) return;
  const std::size_t busiest = busiest_rank(times, stages);
  PriceRequest its = priced.request;
  its.remake(stages.remade[busiest]);
  priced.request.remake(std::ranges::max(stages.remade));
  cost::Price& price = priced.price;
  price = cost::price(its);
  if (busiest + 1 == stages.layers.size()) return;
  const double before = price.time.total(), slower = slower_devices(price.time);
  price.time.head = 0;
  price.time.spread = (slower - 1) * (price.time.total() - price.time.spread);
  for (double* rate : {&price.mfu_causal, &price.mfu_full, &price.tokens_per_s})
    *rate *= before / price.time.total();
}

}  // namespace

double slower_devices(const StepTime& time) {
  return 1 + time.spread / std::max(1e-300, time.total() - time.spread);
}

Stages stages_of(const Finalist& finalist) {
  const PriceRequest& r = finalist.priced.request;
  Stages made = evenly_remade(r, finalist.layers.empty() ? dealt_layers(r) : finalist.layers);
  if (!finalist.remade.empty()) made.remade = finalist.remade;
  return made;
}

Finalist simulate(const Priced& walked, const Stages& given) {
  Finalist found{.priced = walked};
  const PriceRequest& r = found.priced.request;
  const StepTime& time = found.priced.price.time;
  found.seconds = time.total();
  found.bubble = time.bubble + time.pipe;
  const auto row = schedule::find(schedule_name(r.pipe));
  if (r.pp <= 1 || !row.ok()) return found;
  const double stage_count = r.pp * r.chunks, all = r.microbatches();
  const double shown =
      std::min(all, std::max(4, static_cast<int>(kMostPasses / stage_count / r.pp)) * r.pp);
  const auto built = row->build({count_of(r.pp), count_of(r.chunks), count_of(shown)});
  if (!built.ok()) return found;
  const PassTimes passes = pass_times(r, time);
  const Stages stages = given.layers.empty() ? best_stages(r, passes) : given;
  price_again(passes, stages, found.priced);
  const sim::StageTimes times = sim::simulate_stages(*built, stage_costs(passes, stages));
  const double work = times.work.value, more = work / shown * (all - shown);
  found.bubble = times.makespan.value - work;
  found.seconds = (times.makespan.value + more + time.data + time.optimizer) * slower_devices(time);
  found.simulated = true;
  if (stages.layers != dealt_layers(r)) found.layers = stages.layers;
  if (r.remade > 0) found.remade = stages.remade;
  if (r.chunks > 1) return found;
  cost::Price& price = found.priced.price;
  price.memory = fullest_rank(r, stages);
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
