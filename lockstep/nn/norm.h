// A norm of a unit over the last dim of what it is given, the row: RMS norm (Zhang and Sennrich,
// arXiv 1910.07467), y = x rstd gain with rstd = (mean of x^2 + eps)^(-1/2), or LayerNorm (Ba et
// al., arXiv 1607.06450), y = (x - mean) rstd gain + bias with the rstd of x - mean. LibTorch's own
// RMS norm copies its input up to five times; these passes take what they say.
//
// Where elements are narrower than f32, statistics and the parameters' gradients are f32,
// everything is computed in f32 and rounded once, with f32 copies of the parameters and of a few
// tokens at a time (wide_rows.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "lockstep/model/arch.h"
#include "lockstep/model/flat_layout.h"

namespace lockstep::nn {

// What a norm knows of each row, [..., 1], f32 or the compute type if that is wider.
struct RowStats {
  at::Tensor mean;  // undefined for RMS
  at::Tensor rstd;
};

// Finished gradients of its parameters, [n], of the same type.
struct NormGrads {
  at::Tensor gain;
  at::Tensor bias;  // undefined for RMS
};

// Immutable; any thread.
class Norm {
 public:
  // The parameters called `name` + ".weight" (and ".bias") of `unit`. REQUIRES: an RMS norm or a
  // LayerNorm.
  Norm(const model::ModelConfig& config, const model::Unit& unit, const model::FlatLayout& flat,
       const std::string& name);

  // y, contiguous, and its rows' statistics; nothing else is allocated but the copies above. `x`
  // has rows that are contiguous, for LayerNorm all of it: [T, n], or [batch, seq, heads, n] with T
  // equally spaced tokens. `params` is the unit's flat buffer.
  at::Tensor forward(const at::Tensor& params, const at::Tensor& x, RowStats& stats) const;
  // y again from the statistics, the same bits. LayerNorm makes its statistics again for a moment.
  at::Tensor recompute(const at::Tensor& params, const at::Tensor& x, const RowStats& stats) const;

  // The gradient of x from that of y, and those of the parameters. Takes `d` over: RMS overwrites
  // it and needs x's size and a number a row more for a moment; LayerNorm's result is another
  // tensor, and it needs two rows for a moment (of every intra-op thread). Where rows are copied,
  // both overwrite it and need that for a few tokens only.
  at::Tensor grad(const at::Tensor& params, at::Tensor d, const at::Tensor& x,
                  const RowStats& stats, NormGrads& made) const;

  // Writes (is_first) or adds finished gradients to `grads`, the unit's flat gradient buffer.
  void add_grads(const NormGrads& made, const at::Tensor& grads, bool is_first) const;

 private:
  bool has_bias() const { return bias_.size() > 0; }

  double eps_;
  model::FlatRange gain_, bias_;  // bias: empty for RMS
};

}  // namespace lockstep::nn
