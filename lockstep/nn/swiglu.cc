#include "lockstep/nn/swiglu.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "lockstep/tensor/view.h"

namespace lockstep::nn {
namespace {

at::Tensor half(const at::Tensor& pair, std::int64_t which) {
  const std::int64_t f = pair.size(1) / 2;
  return tensor::view_of(pair, {pair.size(0), f}, pair.strides(), which * f);
}

}  // namespace

at::Tensor swiglu(const at::Tensor& wide) { return at::silu(half(wide, 0)).mul_(half(wide, 1)); }

at::Tensor swiglu_grad(const at::Tensor& wide, const at::Tensor& d) {
  const at::Tensor gate = half(wide, 0);
  at::Tensor d_wide = at::empty_like(wide);
  at::Tensor d_gate = half(d_wide, 0), d_up = half(d_wide, 1);
  at::silu_out(d_up, gate);
  d_up.mul_(d);
  at::mul_out(d_gate, d, half(wide, 1));
  at::silu_backward_out(d_gate, d_gate, gate);
  return d_wide;
}

}  // namespace lockstep::nn
