// The learning rate of every step: a rise to the peak, then one of a few ways down. A pure function
// of the step, so a run that is resumed or laid out anew goes on as if nothing had happened.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::spec {

enum class Decay : std::uint8_t {
  kConstant,  // none
  kLinear,    // straight down to the last step
  kCosine,    // half a wave (Loshchilov and Hutter, arXiv 1608.03983)
  kWsd,       // at the peak until the last `decay_steps`, then straight down (arXiv 2404.06395)
};

struct LearningRate {
  double peak = 0;
  double end = 0;           // what it falls to, reached one step after the last
  std::int64_t warmup = 0;  // steps of the rise; the last of them has the peak
  Decay decay = Decay::kConstant;
  std::int64_t decay_steps = 0;  // of kWsd
  bool operator==(const LearningRate&) const = default;

  // Of step number `step`, from 0, in a run of `steps`. The end after the run.
  double at(std::int64_t step, std::int64_t steps) const;
};

std::string_view to_text(Decay decay);  // "cosine"
std::optional<Decay> parse_decay(std::string_view text);
std::vector<std::string> decay_names();

}  // namespace lockstep::spec
