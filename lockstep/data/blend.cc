#include "lockstep/data/blend.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/check.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kSamplesPerSum = 4096;
constexpr double kSurplus = 1 + 0.005;  // Megatron's default

}  // namespace

std::int64_t blend_request(std::int64_t samples, double weight) {
  const double share = std::ceil(static_cast<double>(samples) * weight);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(share * kSurplus)));
}

Blend::Blend(std::span<const double> weights, std::span<const std::int64_t> limits,
             std::int64_t samples)
    : taken_(weights.size()) {
  LS_CHECK(!weights.empty() && weights.size() == limits.size() && weights.size() < 32767,
           weights.size(), " files in a blend with ", limits.size(), " limits");
  files_.reserve(static_cast<std::size_t>(samples));
  std::vector<double> counts(weights.size());  // taken_, as reals
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    if (sample % kSamplesPerSum == 0) sums_.insert(sums_.end(), taken_.begin(), taken_.end());
    const double so_far = std::max(static_cast<double>(sample), 1.0);
    std::size_t most = 0;
    double lack = weights[0] * so_far - counts[0];
    for (std::size_t file = 1; file < weights.size(); ++file) {
      const double own = weights[file] * so_far - counts[file];
      if (own > lack) lack = own, most = file;
    }
    if (taken_[most] >= limits[most]) return;
    files_.push_back(static_cast<std::uint16_t>(most));
    counts[most] += 1;
    ++taken_[most];
  }
}

Blend::Choice Blend::at(std::int64_t sample) const {
  const std::size_t file = files_[static_cast<std::size_t>(sample)];
  const std::int64_t block = sample / kSamplesPerSum;
  const auto first = files_.begin() + block * kSamplesPerSum, last = files_.begin() + sample;
  const std::int64_t before = sums_[static_cast<std::size_t>(block) * taken_.size() + file];
  return {file, before + std::count(first, last, static_cast<std::uint16_t>(file))};
}

}  // namespace lockstep::data
