// SwiGLU (Shazeer, arXiv 2002.05202): silu(gate) up, of `wide`, [T, 2f], which has gate and up side
// by side. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

// [T, f]; nothing else is allocated.
at::Tensor swiglu(const at::Tensor& wide);
// The gradient of `wide` from that of what came out; nothing else is allocated.
at::Tensor swiglu_grad(const at::Tensor& wide, const at::Tensor& d);

}  // namespace lockstep::nn
