// A c10d backend for glass with NCCL's rules: ranks are threads, each communicator has a stream of
// its own on every rank, and runs what is issued on it in that order. It refuses what might
// deadlock on GPUs although it does not here: two communicators that two ranks use in two orders,
// members whose calls or sizes differ. Grouped calls (ncclGroupStart) are not modelled.
//
// The first message of a pair connects it, for which both ends wait. A send is complete only
// together with its receive, however small it is: NCCL's buffers make no promise.
#pragma once

#include <memory>

#include "lockstep/comm/communicator.h"

namespace lockstep::glass {

class Hub;

// What the ranks of one world share. Any thread.
class Wires {
 public:
  Wires();
  ~Wires();

  // The world of one rank: glass memory by these wires, memory of the host by `host`, which must
  // outlive it. The rank's device is that of its number.
  std::unique_ptr<comm::World> join(comm::World& host) const;

 private:
  const std::shared_ptr<Hub> hub_;
};

}  // namespace lockstep::glass
