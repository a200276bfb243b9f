#include "lockstep/nn/activation.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "lockstep/nn/gelu.h"

namespace lockstep::nn {
namespace {

at::Tensor left_half(const at::Tensor& pair) { return pair.narrow(1, 0, pair.size(1) / 2); }
at::Tensor right_half(const at::Tensor& pair) {
  return pair.narrow(1, pair.size(1) / 2, pair.size(1) / 2);
}

at::Tensor swiglu_grad(const at::Tensor& wide, const at::Tensor& d) {
  const at::Tensor gate = left_half(wide);
  at::Tensor d_wide = at::empty_like(wide);
  at::Tensor d_gate = left_half(d_wide);
  at::Tensor d_up = right_half(d_wide);
  at::silu_out(d_up, gate);
  d_up.mul_(d);
  d.mul_(right_half(wide));
  at::silu_backward_out(d_gate, d, gate);
  return d_wide;
}

}  // namespace

std::int64_t columns_per_output(model::Activation kind) {
  return kind == model::Activation::kSwiGlu ? 2 : 1;
}

at::Tensor activate(model::Activation kind, const at::Tensor& wide) {
  if (kind == model::Activation::kGelu) return gelu(wide);
  return at::silu(left_half(wide)).mul_(right_half(wide));
}

at::Tensor activate_grad(model::Activation kind, const at::Tensor& wide, at::Tensor d) {
  if (kind == model::Activation::kSwiGlu) return swiglu_grad(wide, d);
  gelu_grad(wide, d);
  return d;
}

}  // namespace lockstep::nn
