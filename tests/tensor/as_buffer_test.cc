#include "lockstep/tensor/as_buffer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/tensor/torch_version.h"

namespace lockstep::tensor {
namespace {

TEST(AsBuffer, IsTheMemoryOfTheTensor) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    const at::Tensor tensor = at::zeros({3, 5}, scalar_type_of(dtype));
    const Buffer buffer = as_buffer(tensor);
    EXPECT_EQ(buffer.data, tensor.data_ptr());
    EXPECT_EQ(buffer.count, 15);
    EXPECT_EQ(buffer.dtype, dtype);
    EXPECT_EQ(dtype_of(tensor.scalar_type()), dtype);
  }
}

TEST(TorchVersion, HasThreeParts) { EXPECT_EQ(torch_version().rfind("2.", 0), 0u); }

}  // namespace
}  // namespace lockstep::tensor
