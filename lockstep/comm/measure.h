// How long the operations of a communicator take, measured by its members together.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

struct Measurement {
  OpKind op;
  Bytes bytes;  // of the full buffer; of the message for send
  Seconds median;
  std::int64_t repetitions = 0;
  Bytes sent;  // by this member in one operation, from the ledger's definition

  // Bytes of the full buffer per second of the median.
  double rate() const {
    return median.value > 0 ? static_cast<double>(bytes.value) / median.value : 0;
  }
};

// Measures each operation at each size, f32, repeating for about `budget` each. All members call it
// with the same arguments; each gets its own times. `send` is a ping-pong between members 0 and 1,
// halved. REQUIRES: at least two members.
std::vector<Measurement> measure(Communicator& comm, Ledger& ledger, const std::vector<OpKind>& ops,
                                 const std::vector<Bytes>& sizes, Seconds budget,
                                 Deadline deadline);

// One operation in three parts: what its call takes of the caller, what then happens until it is
// complete, and what is left for the caller to do in its wait after that.
struct PhaseTimes {
  OpKind op = OpKind::kBarrier;
  Bytes bytes;  // of the full buffer; of the message for send and recv
  Seconds issue, lane, finish;
};

// Medians over about `budget` for each size, of all members: the mean of what is theirs, and the
// lane from when the last of them had called. An `op` of send gives an element of send and one of
// recv for each size, in pairs of members whose receiver calls first; their lane is the sender's.
// Where a backend cannot tell when an operation was complete, `finish` is in `lane`. All members
// call it with the same arguments and get the same answer. REQUIRES: at least two members;
// all_gather, reduce_scatter, all_reduce or send.
std::vector<PhaseTimes> measure_phases(Communicator& comm, OpKind op,
                                       const std::vector<Bytes>& sizes, Seconds budget,
                                       Deadline deadline);

}  // namespace lockstep::comm
