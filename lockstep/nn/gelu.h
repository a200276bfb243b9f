// GELU by its approximation with tanh (Hendrycks and Gimpel, arXiv 1606.08415), as GPT-2 has it:
//
//   x (1 + tanh u) / 2 = x / (1 + e^(-2u)),  u = (2 / pi)^(1/2) (x + 0.044715 x^3).
//
// LibTorch's kernel computes tanh to the last bit, three times as long, and rounds the elements
// after the last whole vector otherwise, so that a token's bits depended on the tokens beside it.
// Here an element's depend on nothing else. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

// REQUIRES of both: contiguous on a CPU; f64, f32 or bf16, of which the last is computed in f32 and
// rounded once.
at::Tensor gelu(const at::Tensor& x);
// Turns `d`, the gradient of gelu(x), into that of x.
void gelu_grad(const at::Tensor& x, const at::Tensor& d);

// gelu(gate) up, of rows [gate, up]; and the gradient of these from that of the product.
at::Tensor geglu(const at::Tensor& pair);
at::Tensor geglu_grad(const at::Tensor& pair, const at::Tensor& d);

}  // namespace lockstep::nn
