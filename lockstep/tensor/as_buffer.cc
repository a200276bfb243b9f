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

// In the order of DeviceKind.
constexpr std::array kDeviceTypes = {at::kCPU, at::kCUDA, at::kPrivateUse1};

}  // namespace

DType dtype_of(at::ScalarType type) {
  const auto* const found = std::ranges::find(kTypes, type);
  LS_CHECK(found != kTypes.end(), "a tensor of ", c10::toString(type));
  return static_cast<DType>(found - kTypes.begin());
}

at::ScalarType scalar_type_of(DType dtype) { return kTypes.at(static_cast<std::size_t>(dtype)); }

Device device_of(at::Device device) {
  const auto* const found = std::ranges::find(kDeviceTypes, device.type());
  LS_CHECK(found != kDeviceTypes.end(), "no buffers on device ", device);
  return {static_cast<DeviceKind>(found - kDeviceTypes.begin()),
          static_cast<std::int16_t>(std::max<int>(0, device.index()))};
}

at::Device torch_device_of(Device device) {
  if (device.kind == DeviceKind::kCpu) return at::kCPU;
  return {kDeviceTypes.at(static_cast<std::size_t>(device.kind)),
          static_cast<at::DeviceIndex>(device.index)};
}

Buffer as_buffer(const at::Tensor& tensor) {
  LS_CHECK(tensor.is_contiguous(), "a tensor with strides ", tensor.strides(),
           " has no single buffer");
  return {tensor.mutable_data_ptr(), tensor.numel(), dtype_of(tensor.scalar_type()),
          device_of(tensor.device())};
}

at::Tensor as_tensor(const Buffer& buffer) {
  const at::Device device = torch_device_of(buffer.device);
  return at::for_blob(buffer.data, {buffer.count})
      .options(at::TensorOptions(scalar_type_of(buffer.dtype)).device(device))
      .target_device(device)
      .make_tensor();
}

}  // namespace lockstep::tensor
