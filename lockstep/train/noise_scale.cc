#include "lockstep/train/noise_scale.h"

#include <algorithm>
#include <cmath>

namespace lockstep::train {

void NoiseScale::add(const MeanGradient& small, const MeanGradient& large) {
  if (small.tokens < 1 || large.tokens <= small.tokens) return;
  const auto b = static_cast<double>(small.tokens), all = static_cast<double>(large.tokens);
  const double gradient = (all * large.squares - b * small.squares) / (all - b);
  const double variance = (small.squares - large.squares) / (1 / b - 1 / all);
  if (!std::isfinite(gradient) || !std::isfinite(variance)) return;
  Averages& now = averages_;
  now.seen = std::min(now.seen + 1, steps_);
  now.gradient += (gradient - now.gradient) / static_cast<double>(now.seen);
  now.variance += (variance - now.variance) / static_cast<double>(now.seen);
}

std::optional<double> NoiseScale::value() const {
  if (averages_.seen == 0 || !(averages_.gradient > 0)) return std::nullopt;
  return averages_.variance / averages_.gradient;
}

}  // namespace lockstep::train
