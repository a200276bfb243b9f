// The last unit: norm, projection to the vocabulary, cross-entropy. Loss and gradient are computed
// together, a chunk of tokens at a time, so logits exist for one chunk only, are computed once, and
// are never kept. Beside the logits a pass needs, for every token of a chunk, 8 bytes and one element
// and, unless the elements are doubles, 8 bytes more.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/arch/arch.h"
#include "lockstep/arch/flat_layout.h"
#include "lockstep/base/exact_sum.h"

namespace lockstep::nn {

inline constexpr std::int64_t kIgnored = -100;  // a label that takes no part in the loss

// Immutable; any thread.
class Head {
 public:
  // `chunk` tokens at a time, at least 1.
  Head(const arch::ModelConfig& config, const arch::Unit& unit, const arch::FlatLayout& flat,
       std::int64_t chunk);

  // Adds every valid token's loss (natural logarithm) to `loss`. `input` is [T, h], `labels`
  // [batch, seq] of i64.
  void loss(const at::Tensor& params, const at::Tensor& input, const at::Tensor& labels,
            ExactSum& loss) const;

  // The same, and the gradient of (sum of losses x seed): returns that of the input, writes
  // (is_first) or adds that of the weights to `grads`.
  at::Tensor loss_and_grad(const at::Tensor& params, at::Tensor input, const at::Tensor& labels,
                           double seed, const at::Tensor& grads, bool is_first,
                           ExactSum& loss) const;

 private:
  std::int64_t vocab_, hidden_, chunk_;
  double eps_;
  arch::FlatRange norm_, weight_;
};

}  // namespace lockstep::nn
