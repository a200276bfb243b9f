// The ranks that measure a calibration together.
#pragma once

#include <memory>
#include <string>

#include "lockstep/base/result.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/cost/measured/calibration.h"
#include "lockstep/train/calibrate.h"

namespace lockstep::cli {

// Cores of this machine, at least 1.
int cores_here();

// Threads of this process, or where a launcher started it, processes that this one is a rank of. One thread.
class CalibrateCrew {
 public:
  // Refuses a launcher's world of another size.
  static Result<CalibrateCrew> join(int ranks);

  // Complete, with date, versions and processor. Every rank calls it, with the same names in the same order and
  // each of them once.
  cost::Calibration measure(const train::Calibrator& calibrator, const std::string& name,
                            Seconds budget);
  // Whether this process is the one that tells what was measured.
  bool leads() const { return !world_ || world_->rank() == Rank{0}; }

 private:
  std::unique_ptr<comm::World> world_;  // of processes
};

}  // namespace lockstep::cli
