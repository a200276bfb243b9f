// Problems of random tests; all costs are whole numbers, so that times are exact.
#pragma once

#include <vector>

#include "lockstep/pipeline/search/stage_problem.h"
#include "tests/program/dice.h"

namespace lockstep::pipeline {

// Stages alike or not, hops free, short or long, room from the least to plenty.
inline StageProblem random_problem(program::Dice& dice, const pipeline::Shape& shape) {
  const int most = dice.coin() ? 3 : 6;
  const auto time = [&](int least) {
    return Seconds{static_cast<double>(dice.between(least, most))};
  };
  const auto stages = static_cast<std::size_t>(shape.stages());
  StageProblem problem;
  problem.shape = shape;
  if (shape.chunks > 1 && dice.coin()) problem.placement = pipeline::Placement::kV;
  sim::StageCosts& costs = problem.costs;
  costs = {std::vector<Seconds>(stages, time(1)),
           std::vector<Seconds>(stages, time(1)),
           std::vector<Seconds>(stages, time(0)),
           {}};
  if (dice.coin())
    for (std::size_t s = 0; s < stages; ++s)
      costs.forward[s] = time(1), costs.input_grad[s] = time(1), costs.weight_grad[s] = time(0);
  if (dice.coin()) costs.hop = dice.coin() ? time(1) : time(1) * 4;
  problem.max_held = dice.between(shape.chunks, shape.chunks * shape.microbatches + 1);
  return problem;
}

}  // namespace lockstep::pipeline
