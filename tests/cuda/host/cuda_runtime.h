// In place of CUDA's header, so that a host's compiler makes a program of lockstep/cuda/*.cu: what
// those files use of CUDA, in one dimension. A launch returns when it is done. Blocks run one
// after another, the threads of a block as fibers: when one stops is drawn, and so is which one is
// next, so that values depend on a barrier that is missing and on an addition that should be
// atomic. Where threads wait for what cannot come, the launch fails.
//
// A fiber may stop before any access to memory, because kernels are compiled with
// -fsanitize=thread: that has the compiler call a function there, which here is ours. What is not
// seen: blocks that run at the same time, and how GPUs round.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <source_location>

#define __global__
#define __device__
#define __shared__ static  // one block at a time; it begins with what the last one left

struct dim3 {
  unsigned x;
  dim3(unsigned of_x = 1) : x(of_x) {}
};
// Of the thread that runs.
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorLaunchFailure = 719
};
cudaError_t cudaGetLastError();  // and forgets it
const char* cudaGetErrorString(cudaError_t error);

using cudaStream_t = struct CUstream_st*;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

namespace lockstep::cuda::host {

// What tests choose, and see of the last launch.
struct Device {
  unsigned max_blocks = std::numeric_limits<unsigned>::max();  // that run; a grid above it is cut
  unsigned asked_blocks = 0;
  std::mt19937 dice = {};
};
extern Device device;

cudaError_t run(const cudaLaunchConfig_t& config, const std::function<void()>& thread);
// The bits that lane `source` of the warp brings, once all lanes of the mask are here.
std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned source,
                       std::source_location where);
// The lane that __shfl_down_sync takes from: this one, where that is in the next `width` lanes.
unsigned lane_down(unsigned delta, unsigned width);

}  // namespace lockstep::cuda::host

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               const Args&... args) {
  return lockstep::cuda::host::run(*config, [&] { kernel(args...); });
}

// All threads of the block wait for each other, all in the same line.
void __syncthreads(std::source_location where = std::source_location::current());

inline double __shfl_down_sync(unsigned mask, double value, unsigned delta, int width = 32,
                               std::source_location where = std::source_location::current()) {
  namespace host = lockstep::cuda::host;
  const unsigned source = host::lane_down(delta, static_cast<unsigned>(width));
  const auto bits = std::bit_cast<std::uint64_t>(value);
  return std::bit_cast<double>(host::exchange(mask, bits, source, where));
}

unsigned long long atomicAdd(unsigned long long* into, unsigned long long value);
