// The gradient noise scale: up to about how many tokens in a batch more of them still pay
// (McCandlish et al., "An Empirical Model of Large-Batch Training", arXiv 1812.06162, appendix
// A.1). From the mean gradients of b and of B > b tokens,
//
//   |G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b)      the true gradient, squared
//   S     = (|G_b|^2 - |G_B|^2) / (1/b - 1/B)      the variance of one token's gradient
//
// are unbiased, and their ratio S / |G|^2 is the scale. Both are averaged over steps before they
// are divided, because the ratio of noisy numbers is biased.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep::train {

// The square of a mean gradient's norm, and the tokens that it is a mean over.
struct MeanGradient {
  double squares = 0;
  std::int64_t tokens = 0;
};

// One thread at a time.
class NoiseScale {
 public:
  // The mean of the first `steps` steps; later ones each weigh 1 / steps, older ones ever less.
  // REQUIRES: steps >= 1.
  explicit NoiseScale(std::int64_t steps) : steps_(steps) {}

  // A step says nothing when one of them has no tokens, or both have as many, or it is not finite.
  void add(const MeanGradient& small, const MeanGradient& large);

  // In tokens. Absent while noise hides the gradient: before the first step, or |G|^2 <= 0.
  std::optional<double> value() const;

  // What has to be kept to go on later.
  struct Averages {
    std::int64_t seen = 0;  // steps, at most those that are averaged over
    double gradient = 0;    // |G|^2
    double variance = 0;    // S
    bool operator==(const Averages&) const = default;
  };
  const Averages& averages() const { return averages_; }
  void set_averages(const Averages& averages) { averages_ = averages; }

 private:
  std::int64_t steps_;
  Averages averages_;
};

}  // namespace lockstep::train
