// Matrix products whose result may be of a wider type than its operands: bf16 operands, whose
// products f32 holds exactly, added up in f32 and never rounded to bf16. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::nn {

// Whether this LibTorch's library has the product of bf16 operands into f32: one without MKL lacks
// it.
bool has_wide_product();

// out = a b + keep x out, without a temporary; with keep = 0 what `out` held is not read. [m, n]
// from [m, k] and [k, n]; `out` is contiguous by rows, an operand by rows or by columns.
// REQUIRES: three equal types; or has_wide_product() and bf16 operands of an f32 result on a CPU.
void multiply_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b, double keep);

// The same for small matrices in loops, where a tensor for each would cost more than the product.
struct NarrowMatrix {
  const at::BFloat16* data;
  std::int64_t stride;  // between rows, or between columns
  bool by_columns;
};
struct ProductSize {
  std::int64_t m, n, k;
};
// `out` is by rows. REQUIRES: has_wide_product().
void multiply(const ProductSize& size, const NarrowMatrix& a, const NarrowMatrix& b, float* out,
              std::int64_t out_stride, float keep);

}  // namespace lockstep::nn
