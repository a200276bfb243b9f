// Lowered programs of every kind of step, small enough to try each of their mutants.
#pragma once

#include <string>
#include <vector>

#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/lower.h"

namespace lockstep::program {

struct Sample {
  std::string name;
  Program program;
};

// Every schedule of the catalogue that takes the shape, with every ZeRO stage, tied weights,
// recompute, replicas, tensor parallelism and both periods spread over them; and evaluation.
inline std::vector<Sample> lowered_samples() {
  std::vector<Sample> samples;
  int turn = 0;
  for (const pipeline::CatalogRow& row : pipeline::catalog())
    for (const int coords : {1, 2})
      for (const int chunks : {1, 2}) {
        const Result<pipeline::Schedule> schedule = row.build({coords, chunks, 2 * coords});
        if (!schedule.ok()) continue;
        for (int zero = 0; zero <= 3; ++zero, ++turn) {
          const int units = std::max(3, 2 * coords * chunks);
          StepShape step = {.shape = schedule->shape(),
                            .stage_begin = split_units(units, coords * chunks),
                            .zero = zero,
                            .period = turn % 2 == 0 ? Period::kStep : Period::kMicrobatch,
                            .replicas = turn % 3 != 0,
                            .tied = turn % 4 < 2};
          if (turn % 3 != 1)
            for (int unit = 0; unit < units; ++unit)
              step.recompute.push_back(unit > 0 && unit + 1 < units);
          step.resident_units = 1 + turn % 2;
          step.tensor_parallel = turn % 5 < 3;
          if (turn % 5 < 2)
            for (int unit = 0; unit < units; ++unit)
              step.partial.push_back(unit > 0 || turn % 5 == 0);
          const std::string name = std::string(row.name) + " p" + std::to_string(coords) + " v" +
                                   std::to_string(chunks) + " zero" + std::to_string(zero);
          samples.push_back({name, lower(*schedule, step).value()});
        }
      }
  for (int zero = 0; zero <= 3; ++zero)
    samples.push_back({"evaluation zero" + std::to_string(zero),
                       lower_forward_only({.shape = {.coords = 2, .microbatches = 2},
                                           .stage_begin = {0, 2, 4},
                                           .zero = zero,
                                           .tensor_parallel = zero % 2 == 1})
                           .value()});
  return samples;
}

}  // namespace lockstep::program
