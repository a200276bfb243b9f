// The file in which `train --timeline` leaves what it measured, and which `simulate --against`
// reads: the last steps of a run, op by op, in seconds since the first rank began the step.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/cost/measured/fingerprint.h"
#include "lockstep/program/program.h"
#include "lockstep/program/timeline.h"

namespace lockstep::cost {

struct RunTimeline {
  Fingerprint print = {};
  std::string layout = {};   // its short name
  std::string program = {};  // hash of the program whose ops these are
  std::vector<program::StepTimeline> steps = {};

  // The step of median length, the shorter one of an even number. REQUIRES: some step.
  const program::StepTimeline& typical() const;
};

// Equal timelines give equal bytes, and every time reads back to the same bits.
std::string write_timeline(const RunTimeline& timeline);
Result<RunTimeline> read_timeline(std::string_view text, const std::string& name);

// Refuses times of another program, of another model or type, and lists of another length.
Result<void> check_timeline(const RunTimeline& timeline, const program::Program& program,
                            const Fingerprint& print, const std::string& layout,
                            const std::string& name);

}  // namespace lockstep::cost
