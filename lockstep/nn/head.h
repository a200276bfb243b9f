// The last unit: norm, projection to the vocabulary, cross-entropy. Loss and gradient are computed
// together, a chunk of tokens at a time, so logits exist for one chunk only, are computed once, and
// are never kept. Tensor ranks cut the projection by vocabulary (cross_entropy.h). Logits and all
// that the loss makes of them are f32, or the compute type if that is wider. Beside the logits a
// pass of one rank needs 8 bytes for every token of a chunk; and where elements are narrower, the
// gradient of the logits once more in their type.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/base/exact_sum.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/nn/cross_entropy.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/norm.h"
#include "lockstep/nn/tensor_group.h"

namespace lockstep::nn {

// Immutable; any thread where the group is of one rank. T tokens, P of them on the path (block.h).
class Head {
 public:
  // `chunk` tokens at a time, at least 1. REQUIRES: the group's size divides the vocabulary.
  Head(const model::ModelConfig& config, const model::Unit& unit, const model::FlatLayout& flat,
       std::int64_t chunk, TensorGroup group = {});

  // Adds every valid token's loss (natural logarithm) to `loss`, on the first rank of the group
  // only. `input` is [P, h], `labels` [batch, seq] of i64, all of them on every rank.
  void loss(const at::Tensor& params, const at::Tensor& input, const at::Tensor& labels,
            ExactSum& loss) const;

  // The same, and the gradient of (sum of losses x seed): returns that of the input, [P, h], writes
  // (is_first) or adds that of the weights to `grads`; that of the norm is a summand over the group
  // under sequence parallelism.
  at::Tensor loss_and_grad(const at::Tensor& params, at::Tensor input, const at::Tensor& labels,
                           double seed, const at::Tensor& grads, bool is_first,
                           ExactSum& loss) const;

 private:
  at::Tensor logits(const at::Tensor& params, const at::Tensor& normed) const;

  TensorGroup group_;
  CrossEntropy entropy_;
  std::int64_t chunk_;
  Norm norm_;
  Linear projection_;
};

}  // namespace lockstep::nn
