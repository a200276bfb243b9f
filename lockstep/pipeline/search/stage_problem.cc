#include "lockstep/pipeline/search/stage_problem.h"

#include <algorithm>

namespace lockstep::pipeline {

StageChains chains_of(const StageProblem& problem) {
  const sim::StageCosts& costs = problem.costs;
  const int stages = problem.shape.stages();
  StageChains chains{std::vector<Seconds>(stages), std::vector<Seconds>(stages), costs.weight_grad};
  for (int s = 1; s < stages; ++s) {
    const Seconds hop = problem.hop(s - 1, s);
    chains.head[s] = chains.head[s - 1] + costs.forward[s - 1] + hop;
    chains.tail[s] = std::max(chains.tail[s], hop + costs.input_grad[s - 1] + chains.tail[s - 1]);
  }
  for (int s = stages - 1; s > 0; --s) {
    const Seconds hop = problem.hop(s - 1, s);
    chains.round_trip[s - 1] =
        hop + costs.forward[s] + chains.round_trip[s] + costs.input_grad[s] + hop;
  }
  return chains;
}

}  // namespace lockstep::pipeline
