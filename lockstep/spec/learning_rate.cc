#include "lockstep/spec/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace lockstep::spec {
namespace {

constexpr std::pair<Decay, std::string_view> kNames[] = {{Decay::kConstant, "constant"},
                                                         {Decay::kLinear, "linear"},
                                                         {Decay::kCosine, "cosine"},
                                                         {Decay::kWsd, "wsd"}};

}  // namespace

double LearningRate::at(std::int64_t step, std::int64_t steps) const {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (decay == Decay::kConstant) return peak;
  const std::int64_t begin = decay == Decay::kWsd ? steps - decay_steps : warmup;
  if (step < begin || steps <= begin) return peak;
  const double fallen =
      std::min(1.0, static_cast<double>(step - begin) / static_cast<double>(steps - begin));
  const double left =
      decay == Decay::kCosine ? (1 + std::cos(std::numbers::pi * fallen)) / 2 : 1 - fallen;
  return end + (peak - end) * left;
}

std::string_view to_text(Decay decay) {
  return std::ranges::find(kNames, decay, &std::pair<Decay, std::string_view>::first)->second;
}

std::optional<Decay> parse_decay(std::string_view text) {
  const auto* row = std::ranges::find(kNames, text, &std::pair<Decay, std::string_view>::second);
  return row == std::end(kNames) ? std::nullopt : std::optional(row->first);
}

std::vector<std::string> decay_names() {
  std::vector<std::string> names;
  for (const auto& [decay, name] : kNames) names.emplace_back(name);
  return names;
}

}  // namespace lockstep::spec
