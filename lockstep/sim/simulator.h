// Times a program on a virtual clock: every coordinate issues its list in order, asynchronous ops
// run on their lane, and a Wait holds the list until its op is done. The same rules as the executor,
// so a measured timeline can be laid beside a simulated one op by op.
//
// Lanes of a coordinate: one for computation and everything synchronous; one for each group that
// collectives reach, which run in the order of issue; transfers between two coordinates start when
// both ends are posted and pass one after another in each direction.
#pragma once

#include <functional>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/base/units.h"
#include "lockstep/schedule/program.h"
#include "lockstep/schedule/timeline.h"

namespace lockstep::sim {

// How long an op takes on its lane. Waits and frees take no time of their own and are not asked for.
using Cost = std::function<Seconds(Coord coord, const schedule::Op& op)>;

struct Simulation {
  std::vector<schedule::Timeline> coords;
  Seconds makespan;  // of one step from a standing start

  // When each asynchronous op ran on its lane, beside `coords`, by op index; a transfer is there at
  // both of its ends.
  std::vector<schedule::Timeline> lanes;

  // Time that a coordinate's list stood still in Waits.
  std::vector<Seconds> waited;
};

// Refuses a program that can not finish, with the ops that wait for each other.
Result<Simulation> simulate(const schedule::Program& program, const Cost& cost);

}  // namespace lockstep::sim
