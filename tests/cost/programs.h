// Programs and models that the tests of this folder share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/arch/catalog.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/schedule/catalog.h"
#include "lockstep/schedule/lower.h"

namespace lockstep::cost {

inline arch::Model tiny(bool tied = false) {
  arch::ModelConfig config = arch::find("llama-tiny")->config;
  config.tied = tied;
  return *arch::describe(config);
}

struct Layout {
  int pp = 1;
  int microbatches = 1;
  int zero = 0;
  bool replicas = false;
  bool tied = false;
  schedule::Period period = schedule::Period::kStep;
  std::vector<bool> recompute = {};
  bool tensor_parallel = false;
  std::vector<bool> partial = {};
  const char* schedule = "1f1b";
};

inline schedule::Program program_of(const Layout& layout, int units) {
  const auto order = schedule::find(layout.schedule)->build({layout.pp, 1, layout.microbatches});
  schedule::StepShape step;
  step.stage_begin = schedule::split_units(units, layout.pp);
  step.zero = layout.zero;
  step.replicas = layout.replicas;
  step.tied = layout.tied;
  step.period = layout.period;
  step.recompute = layout.recompute;
  step.tensor_parallel = layout.tensor_parallel;
  step.partial = layout.partial;
  return *schedule::lower(*order, step);
}

}  // namespace lockstep::cost
