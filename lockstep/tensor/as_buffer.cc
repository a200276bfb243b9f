#include "lockstep/tensor/as_buffer.h"

#include <ATen/ops/from_blob.h>

#include <array>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::tensor {
namespace {

constexpr std::array<std::pair<DType, at::ScalarType>, kAllDTypes.size()> kPairs = {{
    {DType::kU8, at::kByte},
    {DType::kI32, at::kInt},
    {DType::kI64, at::kLong},
    {DType::kBF16, at::kBFloat16},
    {DType::kF16, at::kHalf},
    {DType::kF32, at::kFloat},
    {DType::kF64, at::kDouble},
}};

}  // namespace

DType dtype_of(at::ScalarType type) {
  for (const auto& [ours, theirs] : kPairs)
    if (theirs == type) return ours;
  fail_check("the tensor's type is known", __FILE__, __LINE__, c10::toString(type));
}

at::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [ours, theirs] : kPairs)
    if (ours == dtype) return theirs;
  fail_check("every DType has a tensor type", __FILE__, __LINE__, "");
}

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
