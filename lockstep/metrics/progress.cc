#include "lockstep/metrics/progress.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep::metrics {
namespace {

constexpr double kFading = 0.9;
constexpr std::size_t kShortestBar = 6, kLongestBar = 30;

std::string bar_of(const Progress& progress, std::size_t length) {
  const double share = static_cast<double>(progress.step) / static_cast<double>(progress.steps);
  const auto done =
      static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(length));
  return " [" + std::string(done, '#') + std::string(length - done, '.') + "]";
}

// 59.96 s would read as 60 s: whole seconds, or minutes, are enough.
std::string rough(Seconds time) {
  if (time.value < 120) return strf("%.0f s", std::ceil(time.value));
  return to_text(Seconds{60 * std::round(time.value / 60)});
}

}  // namespace

void TimeLeft::add(std::int64_t samples, Seconds time) {
  samples_ = kFading * samples_ + static_cast<double>(samples);
  seconds_ = kFading * seconds_ + time.value;
}

Seconds TimeLeft::of(std::int64_t samples_left) const {
  if (samples_ <= 0) return {};
  return {seconds_ / samples_ * static_cast<double>(samples_left)};
}

std::string progress_line(const Progress& progress, int width) {
  const std::string steps = std::to_string(progress.steps), step = std::to_string(progress.step);
  std::string line = "  " + std::string(steps.size() - std::min(steps.size(), step.size()), ' ') +
                     step + "/" + steps;
  const std::string percent = strf(
      "  %3.0f %%",
      std::floor(100.0 * static_cast<double>(progress.step) / static_cast<double>(progress.steps)));
  // The most wanted first.
  const std::vector<std::string> parts = {
      percent, "  " + rough(progress.left) + " left", strf("  loss %.4f", progress.loss),
      "  " + with_commas(static_cast<std::int64_t>(progress.tokens_per_second)) + " tokens/s"};
  const auto columns = static_cast<std::size_t>(std::max(width, 0));
  std::vector<bool> is_shown(parts.size());
  std::size_t used = line.size();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (used + parts[i].size() > columns) break;
    is_shown[i] = true;
    used += parts[i].size();
  }
  constexpr std::size_t kFrame = 3;  // " [" and "]"
  if (used + kFrame + kShortestBar <= columns)
    line += bar_of(progress, std::min(kLongestBar, columns - used - kFrame));
  for (const std::size_t i : {0u, 2u, 3u, 1u})
    if (is_shown[i]) line += parts[i];
  return line.substr(0, columns);
}

}  // namespace lockstep::metrics
