// What `lockstep simulate` is asked: which schedules, on which step, and what to write.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/verb.h"
#include "lockstep/cost/measured/calibration.h"
#include "lockstep/cost/measured/run_timeline.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {

// In any unit, one for all. F, I and W of one microbatch, and collectives, on a whole pipeline
// rank.
struct StepCosts {
  double forward = 1, input_grad = 1, weight_grad = 1;
  double hop = 0;     // one tensor to another pipeline rank
  double gather = 0;  // all parameters of the pipeline rank
  double reduce = 0;  // all gradients of the pipeline rank
};

// A step without a model: equal blocks; embedding and head take no time.
struct PlainStep {
  int layers = 1;  // blocks per stage
  int zero = 0;
  bool recompute = false;
};

// A measured run to compare with.
struct TimelineFile {
  std::string name;
  cost::RunTimeline timeline;
};

// One schedule to be timed.
struct ScheduleCandidate {
  enum class Kind { kNamed, kFile, kAuto };
  std::string name;  // as it was written: "1f1b", "interleaved:4", "mine.csv", "auto"
  Kind kind = Kind::kNamed;
  pipeline::CatalogRow row = {};                 // of kNamed
  std::optional<pipeline::Schedule> order = {};  // of kFile
  std::optional<int> chunks = {};                // of kNamed; of kAuto when they were given
};

struct SimulateRequest {
  int coords = 1;
  int microbatches = 1;
  std::optional<int> group;
  std::optional<double> memory_cap;  // activations of a microbatch on a whole pipeline rank
  bool refill = false;

  StepCosts costs;
  bool has_costs = false;                            // --costs was given
  std::optional<spec::Spec> spec;                    // of a run file
  std::optional<PlainStep> step;                     // neither of both: stages are timed whole
  std::optional<cost::CalibrationFile> calibration;  // of a run; times are then in seconds
  std::string calibrate;                             // the command that measures the same run anew
  std::optional<TimelineFile> against;

  std::vector<ScheduleCandidate> candidates;  // at least one
  bool compares = false;                      // a table, of whatever number of schedules
  bool is_all = false;  // every schedule that takes the shape; others are no mistake

  std::string svg, trace, csv;  // files to write; empty: none

  bool is_lowered() const { return spec || step; }  // else stages are timed whole
  // REQUIRES: is_lowered().
  int zero() const { return spec ? spec->layout.zero : step->zero; }
  bool recomputes() const {
    return spec ? spec->layout.recompute.drop.block : step && step->recompute;
  }
};

// Most of one time, so that sums stay exact, and of pipeline ranks, microbatches and so on.
inline constexpr double kMostTime = 1e9;
inline constexpr double kMostCount = 1e6;

// The step of a run, as its own file says it.
SimulateRequest request_of(const spec::Spec& spec);

// The times in that file, if they are of such units.
Result<cost::CalibrationFile> read_calibration_for(const std::string& name, const spec::Spec& spec);

// Nothing, and every mistake in `report`.
std::optional<SimulateRequest> read_simulate_request(const Args& args, config::Report& report);

}  // namespace lockstep::cli
