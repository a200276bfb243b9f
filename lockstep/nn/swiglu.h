// SwiGLU (Shazeer, arXiv 2002.05202): silu(gate) up, of `wide`, [T, 2f], which has gate and up side
// by side. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

// A view: 0 is the gate, 1 is up.
at::Tensor glu_half(const at::Tensor& wide, std::int64_t which);

// [T, f]; nothing else is allocated.
at::Tensor swiglu(const at::Tensor& wide);
// The gradient of `wide` from that of what came out; nothing else is allocated.
at::Tensor swiglu_grad(const at::Tensor& wide, const at::Tensor& d);

}  // namespace lockstep::nn
