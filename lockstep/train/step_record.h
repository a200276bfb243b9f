// What the last steps of a run looked like, op by op. The executor takes the times anyway; to keep
// them costs a copy per step, and ranks bring them together once, after the last step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/cost/measured/run_timeline.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/program/timeline.h"
#include "lockstep/train/session.h"

namespace lockstep::train {

// Belongs to the rank's thread.
class StepRecord {
 public:
  explicit StepRecord(std::size_t most) : most_(most) {}

  // After a step of the whole batch; the oldest goes when there are too many.
  void add(std::int64_t step, const Session& session);

  // The steps of all ranks. Every rank calls it, after as many add() of the same steps, with a
  // label that differs among records of one world. Clocks of different machines are not compared:
  // there the ranks' steps are taken to begin together.
  cost::RunTimeline collect(const Job& job, comm::World& world, const std::string& label,
                            Deadline deadline) const;

 private:
  struct Kept {
    std::int64_t step;
    SteadyPoint begun;
    program::Timeline ops, lanes;
  };
  const std::size_t most_;
  std::vector<Kept> kept_;
};

}  // namespace lockstep::train
