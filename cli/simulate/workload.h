// How long each part of a step takes, once the shape of its schedule is known.
//
// Times are whole numbers of a tick wherever the costs are decimal numbers and stages are equal, so
// that sums of them are exact (sim/stage_sim.h); only the end result is divided by `ticks`.
#pragma once

#include <optional>
#include <vector>

#include "cli/simulate/request.h"
#include "lockstep/base/result.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/model/arch.h"
#include "lockstep/program/program.h"
#include "lockstep/sim/simulator.h"
#include "lockstep/sim/stage_sim.h"

namespace lockstep::cli {

struct UnitTimes {
  Seconds forward, input_grad, weight_grad;
  Seconds gather, reduce;
  Seconds reduce_across;  // of the reduced shard, over replicas
};

struct StageWorkload {
  sim::StageCosts costs;
  double ticks = 1;  // of one unit of the request's costs
};

struct UnitWorkload {
  program::StepShape step;
  std::vector<UnitTimes> units;
  Seconds hop;
  double ticks = 1;

  // As sim::Cost wants it. A Send takes none: a hop is latency, which tensors on their way share, as
  // sim/stage_sim.h has it.
  Seconds time(const program::Op& op) const;
  // The same stage by stage; a unit that is recomputed counts its forward pass with I.
  StageWorkload stages() const;
};

// How long the ops of one program take, as the simulator asks for it. What it was made from must
// outlive it.
struct StepPricing {
  sim::Cost cost;
  sim::Conditions conditions;
};

// From the calibration of the request where there is one, else from `work`. Refuses a program that the
// calibration does not cover.
Result<StepPricing> price(const SimulateRequest& request, const model::Model* model,
                          const UnitWorkload& work, const program::Program& program);

// The costs that hold: those asked for, or, of a model, F = 1 for a mean coordinate and I and W in
// proportion to its FLOPs: a product of matrices takes the same in F, I and W, attention twice that
// in I and nothing in W. `model` is that of request.spec.
StepCosts costs_of(const SimulateRequest& request, const model::Model* model);

// Equal stages, timed whole.
StageWorkload stage_workload(const SimulateRequest& request, const pipeline::Shape& shape);

// The whole step: equal blocks (request.step), or the units of a model (request.spec), whose costs
// are dealt in proportion to FLOPs and parameters, or, with a calibration, are those of their passes.
// REQUIRES: either of both.
UnitWorkload unit_workload(const SimulateRequest& request, const model::Model* model,
                           const pipeline::Shape& shape);

}  // namespace lockstep::cli
