// Lockstep's operators on CUDA (kernels.h), made known to LibTorch.
#pragma once

namespace lockstep::cuda {

// Before the first of them is called with tensors of a CUDA device. Idempotent; any thread.
void install_operators();

}  // namespace lockstep::cuda
