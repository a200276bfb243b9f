#include "lockstep/nn/swiglu.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <torch/library.h>

#include "lockstep/tensor/view.h"

namespace lockstep::nn {

at::Tensor glu_half(const at::Tensor& wide, std::int64_t which) {
  const std::int64_t f = wide.size(1) / 2;
  return tensor::view_of(wide, {wide.size(0), f}, wide.strides(), which * f);
}

namespace {

at::Tensor swiglu_on_cpu(const at::Tensor& wide) {
  return at::silu(glu_half(wide, 0)).mul_(glu_half(wide, 1));
}

at::Tensor swiglu_grad_on_cpu(const at::Tensor& wide, const at::Tensor& d) {
  const at::Tensor gate = glu_half(wide, 0);
  at::Tensor d_wide = at::empty_like(wide);
  at::Tensor d_gate = glu_half(d_wide, 0), d_up = glu_half(d_wide, 1);
  at::silu_out(d_up, gate);
  d_up.mul_(d);
  at::mul_out(d_gate, d, glu_half(wide, 1));
  at::silu_backward_out(d_gate, d_gate, gate);
  return d_wide;
}

// The same as operators, which an accelerator has kernels of its own for.
TORCH_LIBRARY_FRAGMENT(lockstep, library) {
  library.def("swiglu(Tensor wide) -> Tensor");
  library.def("swiglu_grad(Tensor wide, Tensor d) -> Tensor");
}
TORCH_LIBRARY_IMPL(lockstep, CPU, library) {
  library.impl("swiglu", TORCH_FN(swiglu_on_cpu));
  library.impl("swiglu_grad", TORCH_FN(swiglu_grad_on_cpu));
}

}  // namespace

at::Tensor swiglu(const at::Tensor& wide) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("lockstep::swiglu", "")
                             .typed<decltype(swiglu_on_cpu)>();
  return wide.is_cpu() ? swiglu_on_cpu(wide) : op.call(wide);
}

at::Tensor swiglu_grad(const at::Tensor& wide, const at::Tensor& d) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("lockstep::swiglu_grad", "")
                             .typed<decltype(swiglu_grad_on_cpu)>();
  return wide.is_cpu() ? swiglu_grad_on_cpu(wide, d) : op.call(wide, d);
}

}  // namespace lockstep::nn
