// Operators that LibTorch has for CUDA alone, on the CPU.
#pragma once

namespace lockstep::glass {

// Idempotent. One thread.
void install_cuda_only();

}  // namespace lockstep::glass
