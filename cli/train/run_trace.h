// What `lockstep train` leaves behind of the times it measured: a trace in which prediction and run
// stand one above the other, and a timeline that `lockstep simulate --against` reads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/simulate/request.h"
#include "lockstep/base/result.h"
#include "lockstep/cost/measured/run_timeline.h"
#include "lockstep/program/program.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {

struct RunFiles {
  std::string trace, timeline;                 // names; empty: not wanted
  std::optional<CalibrationFile> calibration;  // of the same run, to predict seconds with
  bool any() const { return !trace.empty() || !timeline.empty(); }
};

// Writes those that are wanted and returns their names. The trace shows the last step of `measured`,
// which is of `program`, the program of `spec`. Without a calibration the prediction is in
// proportion to FLOPs and drawn as long as the measured step; its title says so.
Result<std::vector<std::string>> write_run_files(const RunFiles& files, const spec::Spec& spec,
                                                 const program::Program& program,
                                                 const cost::RunTimeline& measured);

}  // namespace lockstep::cli
