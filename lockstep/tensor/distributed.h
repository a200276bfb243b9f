// Tensors that know what the other ranks hold of them. A collective from the wrong state is a
// broken invariant, so a forgotten or doubled reduction fails where it happens instead of training
// something else.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/base/clock.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/mesh/tensor_state.h"

namespace lockstep::tensor {

struct Distributed {
  at::Tensor local;  // this rank's part, contiguous
  mesh::TensorState state;
};

// A group and the axes it runs along.
struct AxisGroup {
  comm::Communicator& comm;
  mesh::AxisSet axes;
};

// Each waits for its collective. Throws BrokenInvariant for a wrong state, CommError for a failed
// world.
Distributed all_gather(AxisGroup group, const Distributed& tensor,
                       Deadline deadline);  // sharded -> replicated
Distributed reduce_scatter(AxisGroup group, const Distributed& tensor, std::int32_t dim,
                           Deadline deadline);  // partial -> sharded(dim)
Distributed all_reduce(AxisGroup group, const Distributed& tensor,
                       Deadline deadline);  // partial -> replicated

}  // namespace lockstep::tensor
