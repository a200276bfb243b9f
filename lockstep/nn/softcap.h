// Soft caps (Gemma 2, arXiv 2408.00118, section 2) of logits: c tanh(x / c). An element's bits
// depend on nothing else. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

// Caps `x`, f32 or f64 and contiguous on a CPU; `slope`, if it is there, like x, gets the
// derivative of each element.
void softcap(const at::Tensor& x, double cap, const at::Tensor& slope);
// Turns `d`, of any type and contiguous, into itself times `slope`, rounded once.
void softcap_grad(const at::Tensor& d, const at::Tensor& slope);

}  // namespace lockstep::nn
