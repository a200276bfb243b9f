#include "lockstep/observe/run_features.h"

#include <algorithm>
#include <cmath>

namespace lockstep::observe {
namespace {

double recomputed(const model::Drop& drop) {
  if (drop == model::kKeepAll) return 0;
  return drop.block ? 1 : 0.5;
}

// Of one layer and microbatch: below a millisecond the host is felt.
double layer_seconds(const cost::PriceRequest& r, const cost::StepTime& time) {
  const double layers = r.shape->layers;
  return (time.forward + time.backward) / (layers / r.pp * static_cast<double>(r.microbatches()));
}

void add_traits(const cost::PriceRequest& r, const cost::StepTime& time, double reading,
                RunFeatures& made) {
  const auto size = [](double value) { return std::log(std::max(1e-9, value)); };
  made.traits = {size(r.tokens()),
                 size(r.shape->hidden),
                 size(r.devices()),
                 size(r.tp),
                 size(r.cp),
                 size(r.pp),
                 r.precision == cost::Precision::kFp8 ? 1.0 : 0.0,
                 r.stack.host_factor < 1 ? 1.0 : 0.0,
                 recomputed(r.drop),
                 r.shape->has_experts() ? 1.0 : 0.0,
                 size(r.seq),
                 size(layer_seconds(r, time)),
                 reading};
  made.family = r.rates->family;
}

}  // namespace

RunFeatures time_features(const cost::PriceRequest& request, const cost::StepTime& time) {
  RunFeatures made;
  made.shares = {time.forward + time.backward + time.recompute,
                 time.head,
                 time.tensor + time.context,
                 time.expert,
                 time.pipe,
                 time.data,
                 time.bubble,
                 time.optimizer,
                 time.spread};
  const double all = time.total();
  for (double& share : made.shares) share /= all;
  add_traits(request, time, 0, made);
  return made;
}

RunFeatures memory_features(const cost::PriceRequest& request, const cost::Price& price,
                            cost::Reading reading) {
  const cost::Memory& held = price.memory;
  const double all = cost::read_bytes(held, reading);
  RunFeatures made;
  made.shares = {held.weights, held.grads,      held.optimizer,        held.activations,
                 held.logits,  held.transients, all - held.allocated()};
  for (double& share : made.shares) share /= all;
  add_traits(request, price.time, static_cast<double>(reading), made);
  return made;
}

}  // namespace lockstep::observe
