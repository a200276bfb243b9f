// Operators that LibTorch has for CUDA alone, on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::glass {

// Idempotent. One thread.
void install_cuda_only();

// Bytes that CUDA's kernel of this operator takes for itself, as seen on LibTorch's CUDA half.
std::int64_t taken_inside(const std::string& op, const std::vector<at::Tensor>& operands);

}  // namespace lockstep::glass
