// From measured steps to the times of ops: what a calibration says besides its collectives.
#pragma once

#include <span>
#include <vector>

#include "lockstep/cost/measured/calibration.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/mesh/mesh.h"
#include "lockstep/model/arch.h"
#include "lockstep/program/program.h"
#include "lockstep/program/timeline.h"

namespace lockstep::cost {

// Steps of one program, with what it was lowered for. All must outlive the fit.
struct Probe {
  const program::Program& program;
  const model::Model& model;
  const StepSizes& sizes;
  const mesh::Mesh& mesh;
  std::span<const program::StepTimeline> steps;
};

// Sets passes, load, count, norm, update and accumulate of `into`, whose collectives are there:
// their share of meetings is taken off. A pass counts only where nothing was in flight on its list,
// so that it is its own length and not what communication does to it; of a pass that never ran so,
// all count. What took part in a step is averaged over the step, and the median of steps and ranks
// is taken.
void fit_ops(std::span<const Probe> probes, Calibration& into);

}  // namespace lockstep::cost
