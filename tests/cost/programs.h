// Programs and models that the tests of this folder share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/cost/program_bytes.h"
#include "lockstep/model/catalog.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/lower.h"

namespace lockstep::cost {

inline model::Model tiny(bool tied = false) {
  model::ModelConfig config = model::find("llama-tiny")->config;
  config.tied = tied;
  return *model::describe(config);
}

struct Layout {
  int pp = 1;
  int microbatches = 1;
  int zero = 0;
  bool replicas = false;
  bool tied = false;
  program::Period period = program::Period::kStep;
  std::vector<bool> recompute = {};
  bool tensor_parallel = false;
  std::vector<bool> partial = {};
  const char* schedule = "1f1b";
};

inline program::Program program_of(const Layout& layout, int units) {
  const auto order = pipeline::find(layout.schedule)->build({layout.pp, 1, layout.microbatches});
  program::StepShape step;
  step.stage_begin = program::split_units(units, layout.pp);
  step.zero = layout.zero;
  step.replicas = layout.replicas;
  step.tied = layout.tied;
  step.period = layout.period;
  step.recompute = layout.recompute;
  step.tensor_parallel = layout.tensor_parallel;
  step.partial = layout.partial;
  return *program::lower(*order, step);
}

}  // namespace lockstep::cost
