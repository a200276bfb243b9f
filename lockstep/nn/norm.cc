#include "lockstep/nn/norm.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include <tuple>

#include "lockstep/base/check.h"
#include "lockstep/nn/flat_view.h"

namespace lockstep::nn {
namespace {

at::Tensor rms_rstd(const at::Tensor& x, double eps) {
  at::Tensor norm = at::linalg_vector_norm(x, 2, -1, /*keepdim=*/true);
  return norm.mul_(norm).div_(x.size(-1)).add_(eps).rsqrt_();
}

at::Tensor rms_scale(const at::Tensor& x, const at::Tensor& rstd, const at::Tensor& gain) {
  return at::mul(x, rstd).mul_(gain);
}

// Turns d into the gradient of x and returns that of the gain. With u = gain d:
// d_gain = sum over rows of d x rstd, and d_x = rstd u - x rstd^3 / n (sum over the row of u x).
at::Tensor rms_grad(const at::Tensor& d, const at::Tensor& x, const at::Tensor& rstd,
                    const at::Tensor& gain) {
  at::Tensor dx = at::mul(d, x).view({-1, x.size(-1)});
  // Not mv: strict kernels (tensor/strict_kernels.h) keep rows apart in mm only.
  const at::Tensor row_sum = at::mm(dx, gain.unsqueeze(1)).view(rstd.sizes());
  at::Tensor d_gain = at::mv(dx.t(), rstd.view({-1}));
  dx.reset();
  row_sum.mul_(rstd).mul_(rstd).mul_(rstd).div_(-x.size(-1));
  d.mul_(gain).mul_(rstd).addcmul_(x, row_sum);
  return d_gain;
}

}  // namespace

Norm::Norm(const arch::ModelConfig& config, const arch::Unit& unit, const arch::FlatLayout& flat,
           const std::string& name)
    : eps_(config.norm_eps), gain_(place_of(unit, flat, {name + ".weight"})) {
  LS_CHECK(config.norm == arch::NormKind::kRmsNorm || config.norm == arch::NormKind::kLayerNorm,
           "RMS norm or LayerNorm, not ", arch::to_text(config.norm));
  if (config.norm == arch::NormKind::kLayerNorm) bias_ = place_of(unit, flat, {name + ".bias"});
}

at::Tensor Norm::forward(const at::Tensor& params, const at::Tensor& x, RowStats& stats) const {
  const at::Tensor gain = vector_at(params, gain_);
  if (!has_bias()) {
    stats.rstd = rms_rstd(x, eps_);
    return rms_scale(x, stats.rstd, gain);
  }
  at::Tensor y;
  std::tie(y, stats.mean, stats.rstd) =
      at::native_layer_norm(x, {x.size(-1)}, gain, vector_at(params, bias_), eps_);
  return y;
}

at::Tensor Norm::again(const at::Tensor& params, const at::Tensor& x, const RowStats& stats) const {
  if (!has_bias()) return rms_scale(x, stats.rstd, vector_at(params, gain_));
  RowStats same;
  return forward(params, x, same);
}

at::Tensor Norm::grad(const at::Tensor& params, at::Tensor d, const at::Tensor& x,
                      const RowStats& stats, NormGrads& made) const {
  const at::Tensor gain = vector_at(params, gain_);
  if (!has_bias()) {
    made.gain = rms_grad(d, x, stats.rstd, gain);
    return d;
  }
  at::Tensor dx;
  std::tie(dx, made.gain, made.bias) =
      at::native_layer_norm_backward(d, x, {x.size(-1)}, stats.mean, stats.rstd, gain,
                                     vector_at(params, bias_), {true, true, true});
  return dx;
}

void Norm::add_grads(const NormGrads& made, const at::Tensor& grads, bool is_first) const {
  add_value(vector_at(grads, gain_), made.gain, is_first);
  if (has_bias()) add_value(vector_at(grads, bias_), made.bias, is_first);
}

}  // namespace lockstep::nn
