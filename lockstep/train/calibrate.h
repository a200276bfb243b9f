// Measures how long the ops of a run take on this machine, with all ranks busy, by running them: a
// few steps of small jobs of the run's own units (probes) and its collectives at its own sizes.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/cost/measured/calibration.h"
#include "lockstep/spec/spec.h"
#include "lockstep/train/job.h"

namespace lockstep::train {

// Plain data; any thread may read it.
class Calibrator {
 public:
  // For `spec` on at most `cores` ranks: its own number, or the largest multiple of tp below.
  // Refuses a tp beyond the cores, and what make_job refuses. Blocks beyond the eighth are left
  // out: units of a kind are alike.
  static Result<Calibrator> create(const spec::Spec& spec, int cores);

  int ranks() const { return ranks_; }

  // Every rank of a world of ranks() calls it, and all get the same answer up to its text and to
  // times of parts and the slowdown that fits them, which are the rank's own. Runs of
  // one world have names of their own. It takes about the `budget` of rank 0, and longer where one
  // step of each probe does. Date, versions and processor are left to the caller.
  cost::Calibration run(comm::World& world, const std::string& name, Seconds budget) const;

 private:
  struct ProbeJob {
    std::string label;
    Job job;
    // Otherwise only its length says something.
    bool has_passes_alone() const {
      return !job.spec.train.tp_overlap || job.spec.layout.degrees.tp == 1;
    }
  };

  explicit Calibrator(spec::Spec spec) : spec_(std::move(spec)) {}
  Result<void> add_probe(const std::string& label, int zero, const spec::Recompute& recompute,
                         int microbatches);
  // W one microbatch after its I, so that lowering does not merge them.
  void split_backward(Job& job) const;
  void measure_collectives(comm::World& world, const std::string& name, Seconds budget,
                           cost::Calibration& into) const;

  spec::Spec spec_;
  int ranks_ = 1;
  std::vector<ProbeJob> probes_;  // the last one overlaps communication with computation
};

}  // namespace lockstep::train
