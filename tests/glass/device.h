// glass: a test device behind LibTorch's PrivateUse1, for finding without a GPU what a GPU would
// punish. Values are those of the CPU's kernels, bit for bit, because these compute them.
//
//   memory   Tensors point to addresses that nobody may touch; kernels find the memory a constant
//            away. A host that reads or writes faults at once. Fresh memory is NaN. Pinned memory
//            faults while a copy that nobody has waited for may still use it.
//   ops      An op without a CUDA kernel in the wheel (cuda_ops.txt) is refused.
//   streams  Ops run when they are launched; race.h follows the order that streams and events
//            promise and reports what they do not.
//   host     Every wait of the host for the device is counted.
//
// Not so on a GPU: kernels' values and speed, and how a strided access interleaves with another.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tests/glass/race.h"

namespace lockstep::glass {

inline constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;
inline constexpr int kDevices = 16;

// Before any other use; idempotent. One thread.
void install();

// How often a thread has waited for a device, since the process began.
std::int64_t host_waits();

// For kernels that are not ops (backend.cc): the checker's number of a stream, what a tensor
// touches, and the tensor for the CPU to compute on.
int stream_number(c10::Stream stream);
Access access_of(const at::Tensor& tensor, bool writes);
at::Tensor on_cpu(const at::Tensor& tensor);

// Of this thread: its device, the number of its stream there; and a wait of the host for a stream.
c10::DeviceIndex device_now();
int number_now(c10::DeviceIndex device);
void host_waits_for(int stream);

}  // namespace lockstep::glass
