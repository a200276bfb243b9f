// A tensor's memory as the torch-free layers see it, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/base/buffer.h"

namespace lockstep::tensor {

// REQUIRES: contiguous, of a type DType and on a device that DeviceKind knows. The tensor must stay
// alive and unmoved.
Buffer as_buffer(const at::Tensor& tensor);

// Of one dimension, on the same memory, which must outlive it.
at::Tensor as_tensor(const Buffer& buffer);

// LibTorch's name of a device, and back.
Device device_of(at::Device device);
at::Device torch_device_of(Device device);

DType dtype_of(at::ScalarType type);
at::ScalarType scalar_type_of(DType dtype);

}  // namespace lockstep::tensor
