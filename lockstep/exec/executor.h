// Runs a program: one loop over a rank's list, one handler per kind of op. What an op may touch
// comes from effects() alone, and is checked at every op: a value that is read before it is
// complete, defined twice or left behind is a broken invariant, not a wrong number.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/exec/groups.h"
#include "lockstep/exec/workspace.h"
#include "lockstep/program/effects.h"
#include "lockstep/program/timeline.h"

namespace lockstep::exec {

// Belongs to the rank's thread. Program, groups and workspace must outlive it.
class Executor {
 public:
  // Called after every op with its index, for measurements.
  using Observer = std::function<void(int op)>;
  struct Options {
    Seconds op_deadline = {600.0};  // of every transfer and collective
    // To let others know where this rank is: called before every op, once more when an op has done
    // its own part and waits for others, and after the last with the number of ops.
    std::function<void(int op, bool waits)> place = {};
  };

  Executor(const program::Program& program, Coord coord, const Groups& groups, Workspace& workspace,
           Options options);

  // One step. Throws CommError when the world fails; the executor must not be used after that.
  // Returns the world's sums.
  StepSums run(const Observer& observer = {});

  // Of the last step.
  const program::Timeline& timeline() const { return timeline_; }
  // When asynchronous ops ran on their lanes, by op index; those of which the backend can tell.
  const program::Timeline& lanes() const { return lanes_; }
  // The moment from which both count.
  SteadyPoint begun() const { return clock_.origin(); }

 private:
  struct Prepared {
    program::Op op;
    program::Effects effects;
    comm::Work work = {};                 // of an asynchronous op, until its Wait
    std::vector<comm::Work> beside = {};  // of the same op, in another group
  };

  void run_op(Prepared& prepared);
  void check_in_flight(const Prepared& prepared) const;
  void check_before(const Prepared& prepared) const;
  void check_after(const Prepared& prepared) const;

  comm::Work start(Prepared& prepared);
  void count(const Prepared& prepared);
  void reduce_tied(const Prepared& prepared);
  void norm(const Prepared& prepared);
  void wait(const Prepared& prepared);

  comm::Communicator& link(const program::Op& op) const {
    return groups_.link(op.group, transfer(op).from, transfer(op).to);
  }
  const program::Transfer& transfer(const program::Op& op) const {
    return program_.transfers[op.transfer];
  }
  int tag_of(int transfer) const;
  void place(std::size_t op, bool waits);
  // Over one group after the other, waiting for each.
  void add_up(program::CommGroup group, Buffer data);
  std::optional<comm::Ran> wait_for(comm::Work& work);
  Deadline deadline() const { return Deadline::after(options_.op_deadline); }

  const program::Program& program_;
  const Groups& groups_;
  Workspace& workspace_;
  const Options options_;
  std::vector<Prepared> ops_;
  std::vector<int> in_flight_;  // issued, not yet waited for
  StepSums sums_;
  std::int64_t step_ = 0;
  std::size_t now_ = 0;  // index of the op that runs
  RealClock clock_;      // anew for each step
  program::Timeline timeline_, lanes_;
};

}  // namespace lockstep::exec
