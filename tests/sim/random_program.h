// Random programs and costs for tests of the simulator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/program/lower.h"
#include "lockstep/sim/simulator.h"
#include "tests/program/dice.h"

namespace lockstep::sim {

using program::Dice;

// Any order a pipeline could run in.
inline pipeline::Schedule random_schedule(Dice& dice, const pipeline::Shape& shape,
                                          pipeline::Placement placement) {
  using pipeline::PassKind;
  const int stages = shape.stages(), m = shape.microbatches;
  std::vector<int> forward(static_cast<std::size_t>(stages)), backward = forward;
  std::vector<std::vector<pipeline::Pass>> timetable(static_cast<std::size_t>(shape.coords));
  for (int left = 2 * stages * m; left > 0; --left) {
    std::vector<pipeline::Pass> ready;
    for (int s = 0; s < stages; ++s) {
      const auto at = static_cast<std::size_t>(s);
      if (forward[at] < m && (s == 0 || forward[at] < forward[at - 1]))
        ready.push_back({PassKind::kForward, {s}, {forward[at]}});
      if (backward[at] < forward[at] && (s + 1 == stages || backward[at] < backward[at + 1]))
        ready.push_back({PassKind::kBackward, {s}, {backward[at]}});
    }
    const auto pass =
        ready[static_cast<std::size_t>(dice.between(0, static_cast<int>(ready.size()) - 1))];
    ++(pass.kind == PassKind::kForward ? forward
                                       : backward)[static_cast<std::size_t>(pass.stage.value)];
    timetable[static_cast<std::size_t>(coord_of(placement, pass.stage, shape.coords).value)]
        .push_back(pass);
  }
  return pipeline::Schedule::create(shape, placement, std::move(timetable)).value();
}

inline program::Program random_program(Dice& dice) {
  const pipeline::Shape shape = {dice.between(1, 4), dice.between(1, 2), dice.between(1, 5)};
  const auto placement =
      dice.between(0, 1) == 0 ? pipeline::Placement::kLoop : pipeline::Placement::kV;
  const int units = std::max(2, shape.stages()) + dice.between(0, 4);
  program::StepShape step;
  step.stage_begin = program::split_units(units, shape.stages());
  step.zero = dice.between(0, 3);
  step.period = dice.between(0, 1) == 0 ? program::Period::kStep : program::Period::kMicrobatch;
  step.replicas = dice.between(0, 1) == 1;
  step.tied = dice.between(0, 1) == 1;
  for (int unit = 0; unit < units; ++unit)
    step.recompute.push_back(unit > 0 && unit + 1 < units && dice.between(0, 1) == 1);
  step.resident_units = dice.between(1, 3);
  step.prefetch = dice.between(0, 3);
  step.tensor_parallel = dice.between(0, 1) == 1;
  if (step.tensor_parallel)
    for (int unit = 0; unit < units; ++unit) step.partial.push_back(dice.between(0, 1) == 1);
  return program::lower(random_schedule(dice, shape, placement), step).value();
}

// A cost for every op, fixed by its numbers.
inline Cost random_cost(std::uint64_t seed) {
  return [stream = RandomStream(seed, "cost")](Coord coord, const program::Op& op) {
    std::uint64_t number = static_cast<std::uint64_t>(coord.value) * program::kNumOpKinds +
                           static_cast<std::uint64_t>(op.kind);
    for (int part : {op.unit, op.microbatch, op.period, op.transfer})
      number = number * 256 + static_cast<std::uint64_t>(part + 1);
    return Seconds{static_cast<double>(stream.below(1000003, number))};
  };
}

}  // namespace lockstep::sim
