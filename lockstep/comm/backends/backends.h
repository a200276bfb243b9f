// All backends of this build. A new one is a file that makes its row, and its line in backends.cc.
#pragma once

#include <span>

#include "lockstep/comm/backend.h"

namespace lockstep::comm {

std::span<const Backend> backends();

// The first whose buffers are on such devices; null when this build has none.
const Backend* backend_for(DeviceKind device);

// Why there is none that can be used here.
Result<void> check_backend(DeviceKind device);

// Joins by that one. Throws WorldError, also where there is none or it cannot be used here.
std::unique_ptr<World> join(DeviceKind device, const Rendezvous& rendezvous, Deadline deadline,
                            const JoinOptions& options = {});

}  // namespace lockstep::comm
