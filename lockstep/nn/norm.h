// Norms over the last dim of what they are given, the row: RMS norm (Zhang and Sennrich, arXiv
// 1910.07467), y = x rstd gain with rstd = (mean of x^2 + eps)^(-1/2), and LayerNorm (Ba et al.,
// arXiv 1607.06450), y = (x - mean) rstd gain + bias with the rstd of x - mean. LibTorch's own RMS
// norm copies its input up to five times; these take what they say.
//
// Where elements are narrower than f32, statistics and the parameters' gradients are f32,
// everything is computed in f32 and rounded once, with f32 copies of the parameters and of a few
// tokens at a time (wide_rows.h). Any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

// What a norm knows of each row, mean and rstd, is [..., 1], f32 or the compute type if that is
// wider. `x` has rows that are contiguous, for LayerNorm all of it: [T, n], or [batch, seq, heads,
// n] with T equally spaced tokens. Nothing is allocated but what is returned and the copies above.
at::Tensor rms_rstd(const at::Tensor& x, double eps);
// In two steps, where ranks share the columns: the sum of squares of each row, which becomes the
// rstd of `columns` of all ranks.
at::Tensor row_squares(const at::Tensor& x);
void squares_to_rstd(const at::Tensor& squares, std::int64_t columns, double eps);
// y, contiguous.
at::Tensor rms_scale(const at::Tensor& x, const at::Tensor& rstd, const at::Tensor& gain);
// Turns `d`, the gradient of y, into that of x and returns that of the gain, [n]. Needs x's size
// and a number a row more for a moment; where rows are copied, that for a few tokens only.
at::Tensor rms_norm_grad(const at::Tensor& d, const at::Tensor& x, const at::Tensor& rstd,
                         const at::Tensor& gain);

// The same in two steps: the sum of gain d x over each row and the gradient of the gain; and, with
// these sums over all ranks, d. Both need a number a row less.
struct RowDots {
  at::Tensor dots, gain;
};
RowDots row_dots(const at::Tensor& d, const at::Tensor& x, const at::Tensor& rstd,
                 const at::Tensor& gain);
void wide_norm_grad(const at::Tensor& d, const at::Tensor& x, const at::Tensor& rstd,
                    const at::Tensor& dots, const at::Tensor& gain, std::int64_t columns);

struct LayerNormed {
  at::Tensor y, mean, rstd;
};
LayerNormed layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                       double eps);
struct LayerNormGrads {
  at::Tensor x, gain, bias;  // x: `d` itself, overwritten, where elements are narrow
};
// Needs two rows for a moment, of every intra-op thread.
LayerNormGrads layer_norm_grad(const at::Tensor& d, const at::Tensor& x, const at::Tensor& rstd,
                               const at::Tensor& mean, const at::Tensor& gain,
                               const at::Tensor& bias);

}  // namespace lockstep::nn
