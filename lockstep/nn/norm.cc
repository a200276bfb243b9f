#include "lockstep/nn/norm.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/mv.h>

namespace lockstep::nn {

at::Tensor rms_rstd(const at::Tensor& x, double eps) {
  at::Tensor norm = at::linalg_vector_norm(x, 2, -1, /*keepdim=*/true);
  return norm.mul_(norm).div_(x.size(1)).add_(eps).rsqrt_();
}

at::Tensor rms_scale(const at::Tensor& x, const at::Tensor& rstd, const at::Tensor& gain) {
  return at::mul(x, rstd).mul_(gain);
}

// With u = gain d: d_gain = sum over rows of d x rstd, and
// d_x = rstd u - x rstd^3 / h (sum over the row of u x).
at::Tensor rms_grad(const at::Tensor& d, const at::Tensor& x, const at::Tensor& rstd,
                    const at::Tensor& gain) {
  at::Tensor dx = at::mul(d, x);
  // Not mv: strict kernels (tensor/strict_kernels.h) keep rows apart in mm only.
  const at::Tensor row_sum = at::mm(dx, gain.unsqueeze(1));
  at::Tensor d_gain = at::mv(dx.t(), rstd.squeeze(1));
  dx.reset();
  row_sum.mul_(rstd).mul_(rstd).mul_(rstd).div_(-x.size(1));
  d.mul_(gain).mul_(rstd).addcmul_(x, row_sum);
  return d_gain;
}

}  // namespace lockstep::nn
