// How kernels of this folder are started, and which elements are a thread's (private to it).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "lockstep/cuda/kernels.h"

namespace lockstep::cuda {

inline constexpr int kThreads = 256;  // of a block

// Starts blocks of kThreads, no more than kMaxBlocks: kernels go on by a stride. No <<<>>>, so that
// a host's compiler can read this too (tests/cuda).
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), std::int64_t blocks, Stream stream, const Args&... args) {
  constexpr std::int64_t kMaxBlocks = 4096;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks));
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchKernelEx(&config, kernel, args...);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("a CUDA kernel was not launched: ") +
                             cudaGetErrorString(error));
}

inline std::int64_t blocks_for(std::int64_t threads) { return (threads + kThreads - 1) / kThreads; }

// Of a thread: its first element, and how far the next one is.
inline __device__ std::int64_t first_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
inline __device__ std::int64_t stride() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace lockstep::cuda
