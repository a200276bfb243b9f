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
  seen_ = std::min(seen_ + 1, steps_);
  gradient_ += (gradient - gradient_) / static_cast<double>(seen_);
  variance_ += (variance - variance_) / static_cast<double>(seen_);
}

std::optional<double> NoiseScale::value() const {
  if (seen_ == 0 || !(gradient_ > 0)) return std::nullopt;
  return variance_ / gradient_;
}

}  // namespace lockstep::train
