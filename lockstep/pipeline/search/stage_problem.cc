#include "lockstep/pipeline/search/stage_problem.h"

#include <algorithm>

namespace lockstep::pipeline {

StageChains chains_of(const StageProblem& problem) {
  const sim::StageCosts& costs = problem.costs;
  const int stages = problem.shape.stages();
  const auto count = static_cast<std::size_t>(stages);
  StageChains chains{std::vector<Seconds>(count), std::vector<Seconds>(count), costs.weight_grad};
  for (int stage = 1; stage < stages; ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    const Seconds hop = problem.hop(stage - 1, stage);
    chains.head[s] = chains.head[s - 1] + costs.forward[s - 1] + hop;
    chains.tail[s] = std::max(chains.tail[s], hop + costs.input_grad[s - 1] + chains.tail[s - 1]);
  }
  for (int stage = stages - 1; stage > 0; --stage) {
    const auto s = static_cast<std::size_t>(stage);
    const Seconds hop = problem.hop(stage - 1, stage);
    chains.round_trip[s - 1] =
        hop + costs.forward[s] + chains.round_trip[s] + costs.input_grad[s] + hop;
  }
  return chains;
}

}  // namespace lockstep::pipeline
