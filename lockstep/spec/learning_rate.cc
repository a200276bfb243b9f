#include "lockstep/spec/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/base/enum_names.h"

namespace lockstep::spec {
namespace {

constexpr EnumNames<Decay, 4> kDecays = {{"constant", "linear", "cosine", "wsd"}};

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

std::string_view to_text(Decay decay) { return kDecays.name_of(decay); }
std::optional<Decay> parse_decay(std::string_view text) { return kDecays.find(text); }
std::vector<std::string> decay_names() { return kDecays.names(); }

}  // namespace lockstep::spec
