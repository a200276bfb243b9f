// Seconds of an op of a program, which is what the simulator asks for. Of three who answer two fill
// in this table: the planner with closed forms (planner/lowered.cc), `lockstep simulate` with costs
// that it was given. Measured times depend on messages and coordinates too
// (measured/calibrated_prices.h).
#pragma once

#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/program/program.h"

namespace lockstep::cost {

struct UnitTimes {
  Seconds forward, recompute, input_grad, weight_grad;  // B takes the last two together
  Seconds gather, reduce, update;
  Seconds reduce_across;  // of the reduced shard, over replicas
};

// Plain data; any thread may read it.
struct OpTimes {
  std::vector<UnitTimes> units;  // of the whole model, then of experts (base/segment.h)
  Seconds send, tied, norm;

  // On the op's lane, as sim::Cost wants it; 0 for the kinds of op that are not named above.
  Seconds time(const program::Op& op) const;
};

}  // namespace lockstep::cost
