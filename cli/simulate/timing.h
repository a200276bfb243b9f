// Times the schedules that `lockstep simulate` is asked for: how long each part of a step takes
// once the shape of its schedule is known, and then the step.
//
// Times are whole numbers of a tick wherever the costs are decimal numbers and stages are equal, so
// that sums of them are exact (sim/stage_sim.h); only the end result is divided by `ticks`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/simulate/request.h"
#include "lockstep/base/result.h"
#include "lockstep/cost/op_cost.h"
#include "lockstep/draw/figure.h"
#include "lockstep/model/arch.h"
#include "lockstep/pipeline/schedule.h"
#include "lockstep/program/program.h"
#include "lockstep/sim/residuals.h"
#include "lockstep/sim/simulator.h"
#include "lockstep/sim/stage_sim.h"

namespace lockstep::cli {

struct StageWorkload {
  sim::StageCosts costs;
  double ticks = 1;  // of one unit of the request's costs
};

struct UnitWorkload {
  program::StepShape step;
  // A Send takes no time: a hop is latency, which tensors on their way share, as sim/stage_sim.h has it.
  cost::OpTimes times;
  Seconds hop;
  double ticks = 1;

  // The same stage by stage; a unit that is recomputed counts its forward pass with I.
  StageWorkload stages() const;
};

// The costs that hold: those asked for, or, of a model, F = 1 for a mean coordinate and I and W in
// proportion to its FLOPs: a product of matrices takes the same in F, I and W, attention twice that
// in I and nothing in W. `model` is that of request.spec.
StepCosts costs_of(const SimulateRequest& request, const model::Model* model);

// Equal stages, timed whole.
StageWorkload stage_workload(const SimulateRequest& request, const pipeline::Shape& shape);

// The whole step: equal blocks (request.step), or the units of a model (request.spec), whose costs
// are dealt in proportion to FLOPs and parameters, or, with a calibration, are those of their
// passes. REQUIRES: either of both.
UnitWorkload unit_workload(const SimulateRequest& request, const model::Model* model,
                           const pipeline::Shape& shape);

// One schedule on the step that was asked for. Times are in the unit of the costs, with a
// calibration in seconds.
struct Timed {
  std::string name = {};
  pipeline::Schedule schedule;
  std::string origin = {};                  // of a schedule that was searched for
  std::optional<Seconds> lower_bound = {};  // likewise: no schedule is faster
  bool is_run = false;                      // as a run file can ask for it by name
  draw::Figure figure;
  Seconds makespan = {};
  Seconds work = {};                    // of the busiest coordinate
  Seconds bubble = {};                  // makespan - work, rounded once
  Seconds bubble_without_barrier = {};  // as sim::StageTimes says it
  double idle_share = 0;                // of the time of all coordinates
  // Per coordinate, in activations of one microbatch on a whole one.
  std::vector<double> peak = {};
  std::vector<std::int64_t> peak_bytes = {};     // likewise, of everything; empty: not known
  std::optional<sim::Residuals> residuals = {};  // against the measured run

  int peak_coord() const;  // the first that holds most
  double max_peak() const { return peak[static_cast<std::size_t>(peak_coord())]; }
  bool splits_backward() const;
};

class Timing {
 public:
  // The request must outlive it.
  static Result<Timing> create(const SimulateRequest& request);

  Result<Timed> time(const ScheduleCandidate& candidate) const;

  // The fastest row of the catalogue that holds no more than request.memory_cap; none when none
  // does.
  std::optional<Timed> fastest_that_fits() const;

  StepCosts costs() const;  // that hold
  const model::Model* model() const { return model_ ? &*model_ : nullptr; }
  const std::string& no_bytes() const { return no_bytes_; }  // why peak_bytes is empty; or empty

 private:
  explicit Timing(const SimulateRequest& request) : request_(request) {}

  StageWorkload stages_of(const pipeline::Shape& shape) const;
  Result<pipeline::Schedule> order_of(const ScheduleCandidate& candidate) const;
  Result<Timed> given(const ScheduleCandidate& candidate) const;
  Result<Timed> searched(const ScheduleCandidate& candidate) const;
  Result<Timed> timed(pipeline::Schedule order) const;
  Result<void> check_layers(const pipeline::Shape& shape) const;
  // What cannot be made to fit under the cap stays as it is, above it.
  Result<pipeline::Schedule> refilled(const pipeline::Schedule& order) const;
  Timed time_stages(pipeline::Schedule order) const;
  Result<Timed> time_program(pipeline::Schedule order) const;
  // With measured times where the request has them, else with those of `work`.
  Result<sim::Simulation> simulate(const program::Program& program, const UnitWorkload& work) const;
  Result<void> compare(const program::Program& program, const sim::Simulation& simulation,
                       Timed& timed) const;
  void add_bytes(const program::Program& program, const sim::Simulation& simulation,
                 Timed& timed) const;

  const SimulateRequest& request_;
  std::optional<model::Model> model_;
  std::string no_bytes_;
};

}  // namespace lockstep::cli
