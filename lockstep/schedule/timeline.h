// Ops with times, simulated or measured: both write this type with the same op indices, so that a
// prediction and a run can be compared op by op.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/units.h"

namespace lockstep::schedule {

// An asynchronous op appears when it is issued; what was still left of it appears at its Wait.
struct TimedOp {
  std::int32_t op = 0;  // index in the coordinate's list
  Seconds start;        // since the step began
  Seconds end;
  bool operator==(const TimedOp&) const = default;
};

using Timeline = std::vector<TimedOp>;  // of one rank, in the order of its list

}  // namespace lockstep::schedule
