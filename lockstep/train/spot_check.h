// A second opinion on the optimizer's arithmetic: of every step each rank shows a few elements, as
// they were before the update and behind it, to the next rank of the world, which computes the
// update anew. A rank that is alone asks itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/runtime/tensor_workspace.h"
#include "lockstep/train/job.h"

namespace lockstep::train {

inline constexpr std::int64_t kSpotElements = 1024;

// Bytes that a rank sends for it in every step; nothing where it is alone.
std::int64_t spot_check_bytes(const Job& job);

// Belongs to the rank's thread. What is given outlives it.
class SpotCheck {
 public:
  SpotCheck(const Job& job, const runtime::TensorWorkspace& workspace, comm::Communicator& all);

  // In Norm: chooses elements by the step's number, and copies them.
  void before(std::int64_t step);
  // Behind Update. What the rank before this one shows, and this one finds to be otherwise:
  // "first moment of ... of rank 2"; nothing where it is right or nothing was updated. All ranks
  // call it.
  std::optional<std::string> compare(bool updated, Deadline deadline);

 private:
  struct Shown;
  std::optional<std::string> recompute(const std::vector<std::int64_t>& words, int from) const;
  void write(int segment, const model::FlatRange& part, bool is_after);

  const Job& job_;
  const runtime::TensorWorkspace& workspace_;
  comm::Communicator& all_;
  std::vector<int> segments_;        // that may be shown
  std::vector<std::int64_t> shown_;  // a header, then tensors as bytes
};

}  // namespace lockstep::train
