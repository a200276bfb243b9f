// The `gloo` row: buffers are in host memory, bytes travel over TCP.
#pragma once

#include "lockstep/comm/backend.h"

namespace lockstep::comm {

// After a failure a world of it gives up its connections without closing them, because Gloo's
// destructor may block on a peer that is stopped; the process can then end at once.
Backend gloo_backend();

}  // namespace lockstep::comm
