// Times a program on a virtual clock: every pipeline rank issues its list in order, asynchronous
// ops run on their lane, and a Wait holds the list until its op is done. The same rules as the
// executor, so a measured timeline can be laid beside a simulated one op by op.
//
// Lanes of a pipeline rank: one for computation and everything synchronous; one for each group that
// collectives reach, which run in the order of issue. Lanes between pipeline ranks: one for each
// sender and receiver. A transfer begins when both ends are posted and those that were so before
// have left; it occupies the lane and both ends for the cost of its Send, which is then done, and
// arrives the latency later. So bandwidth is shared by waiting in line, and latency is not shared.
//
// In a program that lower() made, every lane has one order that no cost can change: a sender has
// one transfer to a receiver in flight. Times are then sums and maxima of lengths, so a longer op
// never shortens a step. In other programs two transfers may change places, and then it can.
#pragma once

#include <functional>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/base/units.h"
#include "lockstep/program/program.h"
#include "lockstep/program/timeline.h"

namespace lockstep::sim {

// How long an op takes on its lane when nothing else runs on its pipeline ranks, in seconds that
// are not negative. Waits, frees and PostRecvs take no time of their own and are not asked for.
using Cost = std::function<Seconds(Coord coord, const program::Op& op)>;

// What computation and communication on one pipeline rank do to each other's speed, as they share
// memory, caches and, on GPUs, multiprocessors. While an asynchronous collective runs on the
// pipeline rank, or a transfer occupies it, ops that meet nobody (CommGroup::kNone) progress at
// 1/compute of their speed. While such an op runs, collectives on the pipeline rank and transfers
// at either of whose ends it runs progress at 1/comm. Meetings over pipeline ranks and latency keep
// their time. The step of a lowered program never becomes shorter, nor longer than by the larger
// factor; yet a larger factor may give a shorter step than a smaller one. Factors below 1 are
// refused.
struct Slowdown {
  double compute = 1;
  double comm = 1;
};

struct Conditions {
  Cost latency = {};  // asked for a Send: from its end to the arrival; absent: none
  // What an asynchronous op takes of its own list: asked for the op, whose part in its lane or
  // transfer begins after that, and for its Wait, which ends so much later than it could. Absent:
  // none.
  Cost host = {};
  Slowdown slowdown = {};
};

struct Simulation {
  std::vector<program::Timeline> coords;
  Seconds makespan;  // of one step from a standing start

  // When each asynchronous op ran on its lane, beside `coords`, by op index; a transfer is there at
  // both of its ends, latency at the receiver's alone.
  std::vector<program::Timeline> lanes;

  // Parts of computations, beside `coords`; empty unless whoever knows them has put them there.
  std::vector<std::vector<program::TimedPart>> parts = {};

  // Time that a pipeline rank's list stood still in Waits, and before meetings over pipeline ranks.
  std::vector<Seconds> waited;
};

// Refuses a program that cannot finish, with the ops that wait for each other. Time and memory grow
// with the ops of the program, of which there is one list per pipeline rank whatever the
// number of ranks.
Result<Simulation> simulate(const program::Program& program, const Cost& cost,
                            const Conditions& conditions = {});

}  // namespace lockstep::sim
