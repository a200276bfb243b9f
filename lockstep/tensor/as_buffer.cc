#include "lockstep/tensor/as_buffer.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>

#include "lockstep/base/check.h"

namespace lockstep::tensor {
namespace {

// In the order of DType.
constexpr std::array kTypes = {at::kByte, at::kInt,   at::kLong,  at::kBFloat16,
                               at::kHalf, at::kFloat, at::kDouble};
static_assert(kTypes.size() == kAllDTypes.size());

}  // namespace

DType dtype_of(at::ScalarType type) {
  const auto* const found = std::ranges::find(kTypes, type);
  LS_CHECK(found != kTypes.end(), "a tensor of ", c10::toString(type));
  return static_cast<DType>(found - kTypes.begin());
}

at::ScalarType scalar_type_of(DType dtype) { return kTypes.at(static_cast<std::size_t>(dtype)); }

Buffer as_buffer(const at::Tensor& tensor) {
  LS_CHECK(tensor.is_contiguous(), "a tensor with strides ", tensor.strides(),
           " has no single buffer");
  LS_CHECK(tensor.is_cpu() || tensor.is_cuda(), "no buffer on device ", tensor.device());
  const Device device{tensor.is_cpu() ? DeviceKind::kCpu : DeviceKind::kCuda,
                      static_cast<std::int16_t>(tensor.is_cpu() ? 0 : tensor.device().index())};
  return {tensor.mutable_data_ptr(), tensor.numel(), dtype_of(tensor.scalar_type()), device};
}

at::Tensor as_tensor(const Buffer& buffer) {
  const auto device = buffer.device.kind == DeviceKind::kCuda
                          ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(buffer.device.index))
                          : at::Device(at::kCPU);
  return at::from_blob(buffer.data, {buffer.count},
                       at::TensorOptions(scalar_type_of(buffer.dtype)).device(device));
}

}  // namespace lockstep::tensor
