// The `gloo` row: ranks are processes, bytes travel over TCP.
#pragma once

#include <memory>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::tensor {

// Joins the world. Rank 0 hosts the store unless the launcher does. Throws CommError when the
// others can not be reached before the deadline. After a failure the world gives up its connections
// without closing them, because Gloo's destructor may block on a peer that is stopped; the process
// can then end at once.
std::unique_ptr<comm::World> join_gloo(const comm::Rendezvous& rendezvous, Deadline deadline);

// Memory that the row itself uses during an operation on `bytes` (the full buffer) among `size`
// members.
Bytes gloo_scratch(comm::OpKind op, Bytes bytes, int size);

}  // namespace lockstep::tensor
