// All weights of a running job on rank 0, put together from what ranks own, whatever the layout:
// what a checkpoint of this moment would hold.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/result.h"
#include "lockstep/train/checkpoint_state.h"
#include "lockstep/train/session.h"

namespace lockstep::train {

// As wide as weights are trained; nothing of it is counted among the tensors of steps. Belongs to
// the rank's thread.
class WholeWeights {
 public:
  // Called by all ranks; throws WorldError, as does gather(). Job and session must outlive it.
  WholeWeights(const Job& job, Session& session, comm::World& world, Seconds deadline);

  // Called by all ranks behind the same step. What rank 0 had before is replaced.
  void gather();
  void forget() { whole_.clear(); }

  // Of rank 0, between gather() and forget(): elements [first, ...) of a weight by its name, as
  // many as fit into `out`. Refuses a name that no weight has.
  DType type() const;
  Result<void> read(const std::string& name, std::int64_t first, std::span<std::byte> out) const;

  std::int64_t bytes() const;  // that rank 0 holds then

 private:
  // What another rank sends.
  struct Part {
    checkpoint::Slice slice;
    bool is_bias = false;  // in f32 whatever is trained
  };
  std::int64_t width(bool is_bias) const;
  std::vector<std::byte> own_bytes();
  void place(const std::vector<Part>& parts, std::span<const std::byte> bytes);

  const Job& job_;
  Session& session_;
  const bool is_first_;
  const Seconds deadline_;
  const std::vector<OwnSlice> own_;
  const std::unique_ptr<comm::Communicator> all_;
  std::vector<std::vector<Part>> parts_;             // by rank; on rank 0
  std::map<std::string, checkpoint::Slice> slices_;  // whole, by name
  std::map<std::string, std::vector<std::byte>> whole_;
};

}  // namespace lockstep::train
