#include "lockstep/cost/analytic/stage_split.h"

#include <algorithm>

#include "lockstep/pipeline/layer_split.h"

namespace lockstep::cost {

StageSplit split_layers(const PriceRequest& r) {
  const double layers = r.shape->layers;
  if (r.pp <= 1) return {layers, layers, layers};
  if (r.first_layers > 0 && r.last_layers > 0) {
    const double first = r.first_layers, last = r.last_layers;
    return {first, r.pp > 2 ? (layers - first - last) / (r.pp - 2) : 0, last};
  }
  const auto [first, middle, last] = pipeline::coord_layers(
      r.shape->layers, {.coords = r.pp, .chunks = r.chunks}, r.schedule->placement);
  return {static_cast<double>(first), static_cast<double>(middle), static_cast<double>(last)};
}

bool holds_head(const PriceRequest& r, int rank) {
  const bool is_v = r.schedule->placement == pipeline::Placement::kV;
  return is_v || r.pp <= 1 ? rank <= 0 : rank >= r.pp - 1;
}

double layers_on(const PriceRequest& r, const StageSplit& split, int stage) {
  if (stage <= 0) return split.first;
  return stage >= r.pp - 1 ? split.last : split.middle;
}

double expert_layers_on(const PriceRequest& r, const StageSplit& split, int stage) {
  if (!r.shape->has_experts()) return 0;
  if (r.pp <= 1) return r.shape->expert_layers();
  double layers = layers_on(r, split, stage);
  if (stage <= 0) layers = std::max(0.0, layers - r.shape->dense_layers);
  return layers / r.shape->moe_every;
}

double most_layers(const PriceRequest& r) {
  const StageSplit split = split_layers(r);
  return std::max({split.first, split.middle, split.last});
}

double recomputed_share(const PriceRequest& r) {
  if (r.recomputed == 0) return 1;
  const double most = most_layers(r);
  return r.recomputed_of(most) / most;
}

double in_flight(const PriceRequest& r, int stage) {
  return r.schedule->held(pipeline::terms_of(r.pp, r.chunks, r.microbatches()), stage);
}

double bubble_seconds(const PriceRequest& r, double forward, double backward, double more) {
  if (r.pp <= 1) return 0;
  pipeline::PipelineTerms c = pipeline::terms_of(r.pp, r.chunks, r.microbatches());
  c.tf = forward, c.tb = c.tw = backward / 2;
  const double all = r.schedule->idle(c);
  c.m = 0;
  const double once = r.schedule->idle(c);
  return all - std::clamp(more, 0.0, std::max(0.0, all - once));
}

}  // namespace lockstep::cost
