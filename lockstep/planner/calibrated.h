// Layouts for a machine that `lockstep calibrate` has measured. Each is lowered to its program,
// timed op by op with the measured times, and its bytes are walked: what the runtime will do
// instead of a closed form. It holds for that machine alone, and for the microbatches, tensor
// degrees and groups that were measured; other layouts are counted and left out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/result.h"
#include "lockstep/cost/measured/calibration.h"
#include "lockstep/model/arch.h"
#include "lockstep/planner/finalists.h"
#include "lockstep/program/program.h"
#include "lockstep/sim/simulator.h"
#include "lockstep/spec/spec.h"

namespace lockstep::planner {

// A program of the run on a virtual clock, with measured times. Refuses what CalibratedPrices does.
// REQUIRES: a spec whose model `model` describes and whose units the calibration measured.
Result<sim::Simulation> simulate_measured(const program::Program& program, const spec::Spec& spec,
                                          const model::Model& model,
                                          const cost::CalibrationFile& known);

struct TimedStep {
  program::Program program;
  sim::Simulation simulation;
};
// The same of the run's own step. REQUIRES: a spec that spec::legal accepts.
Result<TimedStep> timed_step(const spec::Spec& spec, const model::Model& model,
                             const cost::CalibrationFile& known);

// Its price has the terms of the simulated step, as a mean of pipeline ranks, and the walked bytes
// of the rank that holds most: nothing of a closed form but the FLOPs in its MFU. Collectives of
// tensor parallelism are inside passes.
struct TimedLayout {
  Finalist finalist;
  std::vector<cost::Memory> stages;  // of every pipeline rank
};

struct CalibratedWalk {
  std::vector<TimedLayout> best;  // that fit, fastest first
  std::int64_t layouts = 0;       // that run here
  std::int64_t timed = 0;
  std::map<std::string, std::int64_t> unknown = {};  // what no calibration knows, and in how many
  double least_bytes = 0;                            // of the smallest, when none fits
};

// The question about those of its layouts that calibrations time: no context or expert parallelism,
// products in `dtype`.
Question calibrated_question(Question question, DType dtype);

// Any thread may read it. The question must outlive it and its results; its rates are not used.
class CalibratedSearch {
 public:
  // Refuses a calibration of another model, sequence or type, calibrations of different numbers or
  // kinds of ranks, and a lattice of more than kMostTimed points.
  static constexpr std::int64_t kMostTimed = 20'000;
  static Result<CalibratedSearch> create(const Question& question, const model::ModelConfig& model,
                                         DType dtype, std::vector<cost::CalibrationFile> known);

  // Layouts of the lattice that run here, in its order.
  std::vector<spec::Spec> layouts() const;
  // A layout for each microbatch, tensor degree and set of recomputed rows that layouts() ask for
  // and no calibration has: with one of each, all are known. The largest microbatches first.
  std::vector<spec::Spec> unmeasured() const;
  // Refuses a layout that cannot be timed, with what is not known of it.
  Result<TimedLayout> time(const spec::Layout& layout, std::int64_t microbatch) const;
  // Times all of layouts().
  CalibratedWalk walk() const;

 private:
  CalibratedSearch(const Question& question, model::Model model, DType dtype,
                   std::vector<cost::CalibrationFile> known)
      : question_(question), model_(std::move(model)), dtype_(dtype), known_(std::move(known)) {}
  spec::Spec spec_of(const spec::Layout& layout, std::int64_t microbatch) const;
  const cost::CalibrationFile* times_for(const spec::Spec& spec) const;
  Result<TimedLayout> time(const spec::Spec& spec, const cost::CalibrationFile& known) const;

  const Question& question_;
  model::Model model_;
  DType dtype_;
  std::vector<cost::CalibrationFile> known_;
};

}  // namespace lockstep::planner
