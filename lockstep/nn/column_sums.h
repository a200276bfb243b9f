// Sums over rows of bf16, added up in f32: LibTorch's operator rounds its result to bf16, or copies
// all rows to f32 first. Rows are added in ascending order whatever the threads. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

// [n] of f32 from [rows, n], contiguous on a CPU; nothing else is allocated.
at::Tensor column_sums(const at::Tensor& x);

}  // namespace lockstep::nn
