// RMS norm (Zhang and Sennrich, arXiv 1910.07467) over rows: y = x rstd gain with
// rstd = (mean of x^2 + eps)^(-1/2). LibTorch's own copies its input up to five times; these passes
// take what they say. `x` is [T, h], contiguous; `gain` [h]. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

// [T, 1]; nothing else is allocated.
at::Tensor rms_rstd(const at::Tensor& x, double eps);

// y, [T, h]; nothing else is allocated.
at::Tensor rms_scale(const at::Tensor& x, const at::Tensor& rstd, const at::Tensor& gain);

// Turns `d`, the gradient of y, into that of x and returns that of the gain, [h]. Needs for a
// moment T (h + 1) elements more.
at::Tensor rms_grad(const at::Tensor& d, const at::Tensor& x, const at::Tensor& rstd,
                    const at::Tensor& gain);

}  // namespace lockstep::nn
