// Times the schedules that `lockstep simulate` is asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/simulate/request.h"
#include "lockstep/base/result.h"
#include "lockstep/draw/figure.h"
#include "lockstep/model/arch.h"
#include "lockstep/pipeline/schedule.h"
#include "lockstep/sim/residuals.h"

namespace lockstep::cli {

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
  Seconds work = {};                    // of the busiest pipeline rank
  Seconds bubble = {};                  // makespan - work, rounded once
  Seconds bubble_without_barrier = {};  // as sim::StageTimes says it
  double idle_share = 0;                // of the time of all pipeline ranks
  // Per pipeline rank, in activations of one microbatch on a whole one.
  std::vector<double> peak = {};
  std::vector<std::int64_t> peak_bytes = {};     // likewise, of everything; empty: not known
  std::optional<sim::Residuals> residuals = {};  // against the measured run

  int peak_coord() const;  // the first that holds most
  double max_peak() const { return peak[peak_coord()]; }
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

  // The costs that hold: those asked for, or, of a model, F = 1 for a mean pipeline rank and I and
  // W in proportion to its FLOPs: a product of matrices takes the same in F, I and W, attention
  // twice that in I and nothing in W.
  StepCosts costs() const;
  const model::Model* model() const { return model_ ? &*model_ : nullptr; }
  const std::string& no_bytes() const { return no_bytes_; }  // why peak_bytes is empty; or empty

 private:
  explicit Timing(const SimulateRequest& request) : request_(request) {}

  Result<Timed> given(const ScheduleCandidate& candidate) const;
  Result<Timed> searched(const ScheduleCandidate& candidate) const;
  Result<Timed> timed(const pipeline::Schedule& order) const;
  Result<Timed> time_program(const pipeline::Schedule& order) const;

  const SimulateRequest& request_;
  std::optional<model::Model> model_;
  std::string no_bytes_;
};

}  // namespace lockstep::cli
