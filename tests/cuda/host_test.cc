// The stand-in for a GPU finds what it is for: barriers that are missing, or that not all reach.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::cuda::host {
namespace {

constexpr unsigned kThreads = 64, kAll = 0xffffffff;

// What was wrong with a launch of one block; empty: nothing.
template <class... Params, class... Args>
std::string launched(void (*kernel)(Params...), const Args&... args) {
  cudaLaunchConfig_t config = {};
  config.blockDim = kThreads;
  cudaLaunchKernelEx(&config, kernel, args...);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

__global__ void reverse(bool waits, unsigned* into) {
  __shared__ unsigned shared[kThreads];
  shared[threadIdx.x] = 0;
  __syncthreads();
  shared[threadIdx.x] = threadIdx.x + 1;
  if (waits) __syncthreads();
  into[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

TEST(Host, ABarrierIsNeeded) {
  std::vector<unsigned> right(kThreads), made(kThreads);
  for (unsigned i = 0; i < kThreads; ++i) right[i] = kThreads - i;
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(launched(reverse, true, made.data()), "");
    EXPECT_EQ(made, right);
    EXPECT_EQ(launched(reverse, false, made.data()), "");
    EXPECT_NE(made, right);
  }
}

__global__ void count(bool is_atomic, unsigned long long* into) {
  for (int round = 0; round < 10; ++round)
    if (is_atomic)
      atomicAdd(into, 1);
    else
      *into += 1;
}

TEST(Host, AnAdditionMustBeAtomic) {
  unsigned long long atomic = 0, plain = 0;
  EXPECT_EQ(launched(count, true, &atomic), "");
  EXPECT_EQ(launched(count, false, &plain), "");
  EXPECT_EQ(atomic, 10 * kThreads);
  EXPECT_LT(plain, 10 * kThreads);
}

__global__ void wait_but_for(unsigned thread) {
  if (threadIdx.x != thread) __syncthreads();
}
__global__ void wait_at_two(unsigned thread) {
  if (threadIdx.x < thread)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void throw_in(unsigned thread) {
  if (threadIdx.x == thread) throw std::runtime_error("thrown");
  __syncthreads();
}

TEST(Host, AllThreadsReachABarrier) {
  EXPECT_EQ(launched(wait_but_for, kThreads), "");
  EXPECT_NE(launched(wait_but_for, 0).find("thread 1 waits at "), std::string::npos);
  EXPECT_NE(launched(wait_but_for, kThreads - 1).find("thread 0 waits at "), std::string::npos);
  EXPECT_EQ(launched(wait_at_two, 0), "");
  EXPECT_NE(launched(wait_at_two, 7).find("two barriers"), std::string::npos);
  EXPECT_EQ(launched(throw_in, 9), "thrown");
}

__global__ void shuffle(unsigned mask, unsigned delta, int width, double* into) {
  if ((mask >> threadIdx.x % 32 & 1) != 0)
    into[threadIdx.x] = __shfl_down_sync(mask, threadIdx.x, delta, width);
}

TEST(Host, ShufflesWithinAWidth) {
  std::vector<double> made(kThreads, -1);
  for (const unsigned width : {8u, 32u})
    for (const unsigned delta : {1u, 4u}) {
      EXPECT_EQ(launched(shuffle, kAll, delta, width, made.data()), "");
      for (unsigned i = 0; i < kThreads; ++i)
        EXPECT_EQ(made[i], i % width + delta < width ? i + delta : i) << width << " " << delta;
    }
  made.assign(kThreads, -1);
  EXPECT_EQ(launched(shuffle, 0xffu, 1u, 8, made.data()), "");
  EXPECT_EQ(made[6], 7);
  EXPECT_EQ(made[8], -1);
}

__global__ void shuffle_but_for(unsigned thread, unsigned mask) {
  if (threadIdx.x != thread) __shfl_down_sync(mask, 1, 0);
}
__global__ void shuffle_at_two(unsigned thread) {
  if (threadIdx.x < thread)
    __shfl_down_sync(kAll, 1, 1);
  else
    __shfl_down_sync(kAll, 1, 1);
}
__global__ void shuffle_beyond_mask() {
  if (threadIdx.x == 0) __shfl_down_sync(1, 1, 1);
}

TEST(Host, AllLanesOfTheMaskReachAShuffle) {
  EXPECT_EQ(launched(shuffle_but_for, kThreads, kAll), "");
  EXPECT_EQ(launched(shuffle_at_two, 32), "");  // of two warps
  EXPECT_NE(launched(shuffle_but_for, 40, kAll).find("thread 32 waits at "), std::string::npos);
  EXPECT_NE(launched(shuffle_but_for, 0, kAll - 2).find("leaves out a lane"), std::string::npos);
  EXPECT_NE(launched(shuffle_at_two, 8).find("thread 0 waits at "), std::string::npos);
  EXPECT_NE(launched(shuffle_beyond_mask).find("leaves out a lane"), std::string::npos);
}

TEST(Host, RefusesAnEmptyGrid) {
  cudaLaunchConfig_t config = {};
  config.gridDim = 0;
  EXPECT_EQ(cudaLaunchKernelEx(&config, shuffle_beyond_mask), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace lockstep::cuda::host
