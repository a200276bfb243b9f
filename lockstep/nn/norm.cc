#include "lockstep/nn/norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/zeros.h>

#include <tuple>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/nn/flat_view.h"
#include "lockstep/nn/wide_rows.h"

namespace lockstep::nn {
namespace {

at::Tensor widened(const at::Tensor& x) { return x.to(wide_type_of(x)); }

// A view with tokens along the first dim.
at::Tensor by_token(const at::Tensor& x) { return x.dim() == 4 ? x.flatten(0, 1) : x; }

at::Tensor rms_rstd(const at::Tensor& x, double eps) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = 1;
  at::Tensor norm = at::empty(sizes, x.options().dtype(wide_type_of(x)));
  if (is_narrow(x)) {
    const at::Tensor from = by_token(x), into = by_token(norm);
    for_row_blocks(from, [&](std::int64_t begin, std::int64_t n) {
      at::Tensor part = into.narrow(0, begin, n);
      at::linalg_vector_norm_out(part, widened(from.narrow(0, begin, n)), 2, -1, /*keepdim=*/true);
    });
  } else {
    at::linalg_vector_norm_out(norm, x, 2, -1, /*keepdim=*/true);
  }
  return norm.mul_(norm).div_(x.size(-1)).add_(eps).rsqrt_();
}

at::Tensor rms_scale(const at::Tensor& x, const at::Tensor& rstd, const at::Tensor& gain) {
  if (!is_narrow(x)) return at::mul(x, rstd).mul_(gain);
  const at::Tensor wide_gain = widened(gain);
  at::Tensor y = at::empty(x.sizes(), x.options());
  const at::Tensor from = by_token(x), into = by_token(y), factor = by_token(rstd);
  for_row_blocks(from, [&](std::int64_t begin, std::int64_t n) {
    const at::Tensor wide = widened(from.narrow(0, begin, n));
    into.narrow(0, begin, n).copy_(wide.mul_(factor.narrow(0, begin, n)).mul_(wide_gain));
  });
  return y;
}

// Turns d into the gradient of x and returns that of the gain. With u = gain d:
// d_gain = sum over rows of d x rstd, and d_x = rstd u - x rstd^3 / n (sum over the row of u x).
at::Tensor grad_of_rows(const at::Tensor& d, const at::Tensor& x, const at::Tensor& rstd,
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

at::Tensor rms_grad(const at::Tensor& d, const at::Tensor& x, const at::Tensor& rstd,
                    const at::Tensor& gain) {
  if (!is_narrow(d)) return grad_of_rows(d, x, rstd, gain);
  const at::Tensor wide_gain = widened(gain);
  at::Tensor d_gain = at::zeros(gain.sizes(), rstd.options());
  const at::Tensor rows = by_token(d), of = by_token(x), factor = by_token(rstd);
  for_row_blocks(rows, [&](std::int64_t begin, std::int64_t n) {
    const at::Tensor part = rows.narrow(0, begin, n);
    const at::Tensor wide = widened(part);
    d_gain.add_(
        grad_of_rows(wide, widened(of.narrow(0, begin, n)), factor.narrow(0, begin, n), wide_gain));
    part.copy_(wide);
  });
  return d_gain;
}

// LibTorch's kernels for narrow rows round the gradients of the parameters after every row.
at::Tensor layer_norm_blocks(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                             double eps, RowStats& stats) {
  stats.mean = at::empty({x.size(0), 1}, gain.options());
  stats.rstd = at::empty({x.size(0), 1}, gain.options());
  at::Tensor y = at::empty(x.sizes(), x.options());
  for_row_blocks(x, [&](std::int64_t begin, std::int64_t n) {
    const auto [rows, mean, rstd] =
        at::native_layer_norm(widened(x.narrow(0, begin, n)), {x.size(1)}, gain, bias, eps);
    y.narrow(0, begin, n).copy_(rows);
    stats.mean.narrow(0, begin, n).copy_(mean);
    stats.rstd.narrow(0, begin, n).copy_(rstd);
  });
  return y;
}

// Turns d into the gradient of x.
NormGrads layer_norm_grad_blocks(const at::Tensor& d, const at::Tensor& x, const RowStats& stats,
                                 const at::Tensor& gain, const at::Tensor& bias) {
  NormGrads made{at::zeros(gain.sizes(), gain.options()), at::zeros(gain.sizes(), gain.options())};
  for_row_blocks(d, [&](std::int64_t begin, std::int64_t n) {
    const at::Tensor rows = d.narrow(0, begin, n);
    const auto [dx, d_gain, d_bias] = at::native_layer_norm_backward(
        widened(rows), widened(x.narrow(0, begin, n)), {x.size(1)}, stats.mean.narrow(0, begin, n),
        stats.rstd.narrow(0, begin, n), gain, bias, {true, true, true});
    made.gain.add_(d_gain);
    made.bias.add_(d_bias);
    rows.copy_(dx);
  });
  return made;
}

}  // namespace

Norm::Norm(const model::ModelConfig& config, const model::Unit& unit, const model::FlatLayout& flat,
           const std::string& name)
    : eps_(config.norm_eps), gain_(place_of(unit, flat, {name + ".weight"})) {
  LS_CHECK(config.norm == model::NormKind::kRmsNorm || config.norm == model::NormKind::kLayerNorm,
           "RMS norm or LayerNorm, not ", model::to_text(config.norm));
  if (config.norm == model::NormKind::kLayerNorm) bias_ = place_of(unit, flat, {name + ".bias"});
}

at::Tensor Norm::forward(const at::Tensor& params, const at::Tensor& x, RowStats& stats) const {
  const at::Tensor gain = vector_at(params, gain_);
  if (!has_bias()) {
    stats.rstd = rms_rstd(x, eps_);
    return rms_scale(x, stats.rstd, gain);
  }
  const at::Tensor bias = vector_at(params, bias_);
  if (is_narrow(x)) return layer_norm_blocks(x, widened(gain), widened(bias), eps_, stats);
  at::Tensor y;
  std::tie(y, stats.mean, stats.rstd) = at::native_layer_norm(x, {x.size(-1)}, gain, bias, eps_);
  return y;
}

at::Tensor Norm::recompute(const at::Tensor& params, const at::Tensor& x,
                           const RowStats& stats) const {
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
  const at::Tensor bias = vector_at(params, bias_);
  if (is_narrow(d)) {
    made = layer_norm_grad_blocks(d, x, stats, widened(gain), widened(bias));
    return d;
  }
  at::Tensor dx;
  std::tie(dx, made.gain, made.bias) = at::native_layer_norm_backward(
      d, x, {x.size(-1)}, stats.mean, stats.rstd, gain, bias, {true, true, true});
  return dx;
}

void Norm::add_grads(const NormGrads& made, const at::Tensor& grads, bool is_first) const {
  add_value(vector_at(grads, gain_), made.gain, is_first);
  if (has_bias()) add_value(vector_at(grads, bias_), made.bias, is_first);
}

}  // namespace lockstep::nn
