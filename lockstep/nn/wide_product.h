// Matrix products whose result may be of a wider type than its operands: bf16 operands, whose products
// f32 holds exactly, added up in f32 and never rounded to bf16. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

// Whether this LibTorch's library has the product of bf16 operands into f32: one without MKL lacks it.
bool has_wide_product();

// out = a b + keep x out, without a temporary; with keep = 0 what `out` held is not read. [m, n] from
// [m, k] and [k, n]; `out` is contiguous by rows, an operand by rows or by columns.
// REQUIRES: three equal types; or has_wide_product() and bf16 operands of an f32 result on a CPU.
void multiply_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b, double keep);

}  // namespace lockstep::nn
