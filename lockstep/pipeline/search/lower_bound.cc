#include "lockstep/pipeline/search/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

namespace lockstep::pipeline {
namespace {

// A sum of n doubles is off by at most n times 2^-53 of it.
constexpr double kRoundedDown = 1 - 0x1p-36;

bool is_whole(Seconds time) { return std::floor(time.value) == time.value; }

bool are_whole(const sim::StageCosts& costs) {
  return is_whole(costs.hop) && std::ranges::all_of(costs.forward, is_whole) &&
         std::ranges::all_of(costs.input_grad, is_whole) &&
         std::ranges::all_of(costs.weight_grad, is_whole);
}

Seconds total(const std::vector<Seconds>& times) {
  return std::accumulate(times.begin(), times.end(), Seconds{});
}

class CoordBound {
 public:
  CoordBound(const StageProblem& problem, const StageChains& chains, std::size_t coord)
      : costs_(problem.costs), chains_(chains), m_(problem.shape.microbatches) {
    for (int stage = 0; stage < problem.shape.stages(); ++stage)
      if (problem.coord(stage) == coord) stages_.push_back(stage);
    count_ = static_cast<int>(stages_.size()) * m_;
    places_ = std::min(problem.max_held, count_);
    head_ = chains_.head[stages_.front()];
    // The deepest stage of a pipeline rank has its gradient first.
    const Seconds first_grad = chains_.first_grad(costs_, stages_.back());
    open_ = std::max(head_, first_grad - longest(places_, costs_.forward));
  }

  Seconds value() const {
    const Seconds work = all(costs_.forward) + all(costs_.input_grad) + all(costs_.weight_grad);
    const Seconds drain = work - longest(places_, costs_.weight_grad) +
                          least([&](std::size_t s) { return chains_.tail[s]; });
    return std::max({open_ + work, open_ + drain, turning(), room()});
  }

 private:
  Seconds turning() const {
    std::vector<Seconds> backward = costs_.input_grad;
    for (std::size_t s = 0; s < backward.size(); ++s) backward[s] += costs_.weight_grad[s];
    const Seconds shortest = all(backward) - longest(places_, backward);
    return (places_ < count_ ? open_ : head_) + all(costs_.forward) + shortest +
           least([&](std::size_t s) { return after_forward(s); });
  }

  Seconds room() const {
    Seconds step;
    if (stages_.size() == 1) {
      const std::size_t s = stages_.front();
      const int rounds = (m_ - 1) / places_, rest = (m_ - 1) % places_;
      step = head_ + costs_.forward[s] * (rest + 1) + stay(s) * rounds + after_forward(s);
    }
    Seconds held;
    for (const std::size_t s : stages_) held += stay(s) * m_;
    const Seconds slope = least([&](std::size_t s) { return costs_.forward[s]; }) +
                          least([&](std::size_t s) { return costs_.weight_grad[s]; });
    held += slope * (places_ * (places_ - 1.0) / 2);
    return std::max(step, (head_ + held * (1.0 / places_)) * kRoundedDown);
  }

  // From the end of F to the end of the step.
  Seconds after_forward(std::size_t s) const {
    return chains_.round_trip[s] + costs_.input_grad[s] + chains_.tail[s];
  }
  Seconds stay(std::size_t s) const {
    return costs_.forward[s] + chains_.round_trip[s] + costs_.input_grad[s] + costs_.weight_grad[s];
  }
  Seconds least(const std::function<Seconds(std::size_t)>& of) const {
    Seconds value = of(stages_.front());
    for (const std::size_t s : stages_) value = std::min(value, of(s));
    return value;
  }
  Seconds all(const std::vector<Seconds>& per_stage) const { return longest(count_, per_stage); }
  // Of the passes of one kind on this pipeline rank.
  Seconds longest(int count, const std::vector<Seconds>& per_stage) const {
    std::vector<Seconds> times;
    for (const std::size_t s : stages_) times.insert(times.end(), m_, per_stage[s]);
    std::ranges::sort(times, std::greater<>());
    times.resize(count);
    return total(times);
  }

  const sim::StageCosts& costs_;
  const StageChains& chains_;
  int m_;
  std::vector<std::size_t> stages_;  // ascending
  int count_ = 0, places_ = 0;       // n and K of the header
  Seconds head_, open_;
};

}  // namespace

Seconds lower_bound(const StageProblem& problem) {
  const StageChains chains = chains_of(problem);
  Seconds bound;
  for (int coord = 0; coord < problem.shape.coords; ++coord)
    bound = std::max(bound, CoordBound(problem, chains, coord).value());
  return are_whole(problem.costs) ? bound : bound * kRoundedDown;
}

bool reaches(Seconds makespan, Seconds bound) {
  return makespan * (kRoundedDown * kRoundedDown) <= bound;
}

}  // namespace lockstep::pipeline
