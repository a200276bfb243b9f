// The `nccl` row: NCCL moves the memory of CUDA devices, one device per rank, and gloo that of
// their hosts. Built by the preset `cuda` only. Compiled and linked, not yet run on a GPU.
#pragma once

#include "lockstep/comm/backend.h"

namespace lockstep::comm {

// A rank's device is that of LOCAL_RANK, or its rank modulo the devices where nobody says.
// Reductions add in NCCL's order, which is fixed for a given group and size but is not the tree of
// the other rows; tags of send and recv are ignored by NCCL, so a pair's messages must be received
// in the order in which they were sent.
Backend nccl_backend();

}  // namespace lockstep::comm
