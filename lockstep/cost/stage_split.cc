#include "lockstep/cost/stage_split.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/divides.h"

namespace lockstep::cost {

StageSplit split_layers(const PriceRequest& r) {
  const double layers = r.shape->layers, p = r.pp, places = r.pp * r.chunks;
  if (p <= 1) return {layers, layers, layers};
  if (r.first_layers > 0 && r.last_layers > 0) {
    const double inside = p > 2 ? (layers - r.first_layers - r.last_layers) / (p - 2) : 0;
    return {r.first_layers, inside, r.last_layers};
  }
  if (divides(places, layers)) return {layers / p, layers / p, layers / p};
  if (divides(places, layers + 2) && layers + 2 > 2 * p)
    return {(layers + 2) / p - 1, (layers + 2) / p, (layers + 2) / p - 1};
  if (divides(places, layers + 1) && layers + 1 > p)
    return {(layers + 1) / p, (layers + 1) / p, (layers + 1) / p - 1};
  const double most = std::ceil(layers / p);
  return {most, most, std::max(0.0, std::floor(layers / p))};
}

double layers_on(const PriceRequest& r, const StageSplit& split, double stage) {
  if (stage <= 0) return split.first;
  return stage >= r.pp - 1 ? split.last : split.middle;
}

double expert_layers_on(const PriceRequest& r, const StageSplit& split, double stage) {
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

double remade_share(const PriceRequest& r) {
  if (r.remade == 0) return 1;
  const double most = most_layers(r);
  return r.remade_of(most) / most;
}

double in_flight(const PriceRequest& r, double stage) {
  const double m = r.microbatches(), p = r.pp, v = r.chunks;
  switch (r.pipe) {
    case Pipe::kGpipe:
      return m;
    case Pipe::k1f1b:
      return std::min(m, p - stage);
    case Pipe::kInterleaved:
      return std::min(m * v, 2 * (p - 1 - stage) + (v - 1) * p + 1) / v;
    case Pipe::kZbH1:
    case Pipe::kZbV:
      return std::min(m, p);
    case Pipe::kVHalf:
      return std::min(m, std::floor((p + 2) / 2));
    case Pipe::kVMin:
      return std::min(m, std::floor((p + 4) / 3));
    case Pipe::kDualPipeV:
      return std::min(m, p + 0.5);
  }
  return m;
}

double bubble_seconds(const PriceRequest& r, double forward, double backward) {
  const double p = r.pp, whole = forward + backward;
  switch (r.pipe) {
    case Pipe::kGpipe:
    case Pipe::k1f1b:
      return (p - 1) * whole;
    case Pipe::kInterleaved:
      return (p - 1) * whole / r.chunks;
    case Pipe::kZbH1:
      return (p - 1) * forward;  // F + I - W with I = W
    case Pipe::kZbV:
      return (p - 1) * forward / 2;  // with the barrier of the gradient norm
    case Pipe::kVHalf:
      return (p - 1) * whole / 2;
    case Pipe::kVMin:
      return (p - 1) * whole * 2 / 3;
    case Pipe::kDualPipeV:
      return std::max(0.0, p / 2 - 1) * whole / 2;
  }
  return 0;
}

}  // namespace lockstep::cost
