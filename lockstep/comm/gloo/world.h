// The `gloo` row: buffers are in host memory, bytes travel over TCP.
#pragma once

#include <memory>

#include "lockstep/comm/backend.h"

namespace lockstep::comm {

class ProcessWorld;

// What the row's join does, for a row whose device has a transport of its own beside it.
std::unique_ptr<ProcessWorld> join_gloo(const Rendezvous& rendezvous, Deadline deadline,
                                        const JoinOptions& options);

// After a failure a world of it gives up its connections without closing them, because Gloo's
// destructor may block on a peer that is stopped; the process can then end at once.
Backend gloo_backend();

}  // namespace lockstep::comm
