// The `nccl` row: ranks are processes with one CUDA device each. Built by the preset `cuda` only.
// Compiled and linked, not yet run on a GPU.
#pragma once

#include <memory>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::comm {

// Joins the world on CUDA device `device`. Reductions add in NCCL's order, which is fixed for a
// given group and size but is not the tree of the CPU rows; tags of send and recv are ignored by
// NCCL, so a pair's messages must be received in the order in which they were sent.
std::unique_ptr<comm::World> join_nccl(const comm::Rendezvous& rendezvous, int device,
                                       Deadline deadline);

// CUDA devices that can be used now; 0 without a driver.
int count_cuda_devices();

}  // namespace lockstep::comm
