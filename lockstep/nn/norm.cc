#include "lockstep/nn/norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/zeros.h>

#include <utility>
#include <vector>

#include "lockstep/nn/wide_rows.h"

namespace lockstep::nn {
namespace {

at::Tensor widened(const at::Tensor& x) { return x.to(wide_type_of(x)); }

// A view with tokens along the first dim.
at::Tensor by_token(const at::Tensor& x) { return x.dim() == 4 ? x.flatten(0, 1) : x; }

// With u = gain d: d_gain = sum over rows of d x rstd, and d_x = rstd u - x rstd^3 / n (sum over
// the row of u x). This makes the sums from the products d x,
RowDots dots_of(const at::Tensor& products, const at::Tensor& rstd, const at::Tensor& gain) {
  // Not mv: strict kernels (tensor/strict_kernels.h) keep rows apart in mm only.
  return {at::mm(products, gain.unsqueeze(1)).view(rstd.sizes()),
          at::mv(products.t(), rstd.view({-1}))};
}
// this the factor of x,
at::Tensor factor_of(const at::Tensor& dots, const at::Tensor& rstd, std::int64_t n) {
  return dots.mul_(rstd).mul_(rstd).mul_(rstd).div_(-static_cast<double>(n));
}
// and this turns d into the gradient of x.
void turn_rows(const at::Tensor& d, const at::Tensor& x, const at::Tensor& rstd,
               const at::Tensor& factor, const at::Tensor& gain) {
  d.mul_(gain).mul_(rstd).addcmul_(x, factor);
}

// All of it; returns the gradient of the gain.
at::Tensor grad_of_rows(const at::Tensor& d, const at::Tensor& x, const at::Tensor& rstd,
                        const at::Tensor& gain) {
  RowDots made = dots_of(at::mul(d, x).view({-1, x.size(-1)}), rstd, gain);
  turn_rows(d, x, rstd, factor_of(made.dots, rstd, x.size(-1)), gain);
  return std::move(made.gain);
}

// LibTorch's kernels for narrow rows round the gradients of the parameters after every row.
LayerNormed layer_norm_blocks(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                              double eps) {
  LayerNormed made = {
      {}, at::empty({x.size(0), 1}, gain.options()), at::empty({x.size(0), 1}, gain.options())};
  made.y = at::empty(x.sizes(), x.options());
  for_row_blocks(x, [&](std::int64_t begin, std::int64_t n) {
    const auto [rows, mean, rstd] =
        at::native_layer_norm(widened(x.narrow(0, begin, n)), {x.size(1)}, gain, bias, eps);
    made.y.narrow(0, begin, n).copy_(rows);
    made.mean.narrow(0, begin, n).copy_(mean);
    made.rstd.narrow(0, begin, n).copy_(rstd);
  });
  return made;
}

// Turns d into the gradient of x.
LayerNormGrads layer_norm_grad_blocks(const at::Tensor& d, const at::Tensor& x,
                                      const at::Tensor& rstd, const at::Tensor& mean,
                                      const at::Tensor& gain, const at::Tensor& bias) {
  LayerNormGrads made = {d, at::zeros(gain.sizes(), gain.options()),
                         at::zeros(gain.sizes(), gain.options())};
  for_row_blocks(d, [&](std::int64_t begin, std::int64_t n) {
    const at::Tensor rows = d.narrow(0, begin, n);
    const auto [dx, d_gain, d_bias] = at::native_layer_norm_backward(
        widened(rows), widened(x.narrow(0, begin, n)), {x.size(1)}, mean.narrow(0, begin, n),
        rstd.narrow(0, begin, n), gain, bias, {true, true, true});
    made.gain.add_(d_gain);
    made.bias.add_(d_bias);
    rows.copy_(dx);
  });
  return made;
}

}  // namespace

at::Tensor row_squares(const at::Tensor& x) {
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
  return norm.mul_(norm);
}

void squares_to_rstd(const at::Tensor& squares, std::int64_t columns, double eps) {
  squares.div_(static_cast<double>(columns)).add_(eps).rsqrt_();
}

at::Tensor rms_rstd(const at::Tensor& x, double eps) {
  const at::Tensor rstd = row_squares(x);
  squares_to_rstd(rstd, x.size(-1), eps);
  return rstd;
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

at::Tensor rms_norm_grad(const at::Tensor& d, const at::Tensor& x, const at::Tensor& rstd,
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

RowDots row_dots(const at::Tensor& d, const at::Tensor& x, const at::Tensor& rstd,
                 const at::Tensor& gain) {
  if (!is_narrow(d)) return dots_of(at::mul(d, x), rstd, gain);
  const at::Tensor wide_gain = widened(gain);
  RowDots made = {at::empty(rstd.sizes(), rstd.options()), at::zeros(gain.sizes(), rstd.options())};
  for_row_blocks(d, [&](std::int64_t begin, std::int64_t n) {
    const at::Tensor products = widened(d.narrow(0, begin, n));
    products.mul_(widened(x.narrow(0, begin, n)));
    const RowDots part = dots_of(products, rstd.narrow(0, begin, n), wide_gain);
    made.dots.narrow(0, begin, n).copy_(part.dots);
    made.gain.add_(part.gain);
  });
  return made;
}

void wide_norm_grad(const at::Tensor& d, const at::Tensor& x, const at::Tensor& rstd,
                    const at::Tensor& dots, const at::Tensor& gain, std::int64_t columns) {
  const at::Tensor factor = factor_of(dots.clone(), rstd, columns);
  if (!is_narrow(d)) return turn_rows(d, x, rstd, factor, gain);
  const at::Tensor wide_gain = widened(gain);
  for_row_blocks(d, [&](std::int64_t begin, std::int64_t n) {
    const at::Tensor part = d.narrow(0, begin, n);
    const at::Tensor wide = widened(part);
    turn_rows(wide, widened(x.narrow(0, begin, n)), rstd.narrow(0, begin, n),
              factor.narrow(0, begin, n), wide_gain);
    part.copy_(wide);
  });
}

LayerNormed layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                       double eps) {
  if (is_narrow(x)) return layer_norm_blocks(x, widened(gain), widened(bias), eps);
  auto [y, mean, rstd] = at::native_layer_norm(x, {x.size(-1)}, gain, bias, eps);
  return {std::move(y), std::move(mean), std::move(rstd)};
}

LayerNormGrads layer_norm_grad(const at::Tensor& d, const at::Tensor& x, const at::Tensor& rstd,
                               const at::Tensor& mean, const at::Tensor& gain,
                               const at::Tensor& bias) {
  if (is_narrow(d)) return layer_norm_grad_blocks(d, x, rstd, mean, widened(gain), widened(bias));
  auto [dx, d_gain, d_bias] = at::native_layer_norm_backward(d, x, {x.size(-1)}, mean, rstd, gain,
                                                             bias, {true, true, true});
  return {std::move(dx), std::move(d_gain), std::move(d_bias)};
}

}  // namespace lockstep::nn
