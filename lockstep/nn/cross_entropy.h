// Cross-entropy of a chunk of tokens whose logits the tensor ranks cut by vocabulary. Each rank has
// [n, V / t] of them; three numbers a token and rank travel: the greatest logit, the sum of
// exponentials below it, and the label's logit from the rank that has it (others bring zero). So
// every rank has every token's loss; the first of the group adds it, so that a sum over all ranks
// counts a token once. One rank alone has its own way (row_entropy.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/base/exact_sum.h"
#include "lockstep/nn/row_entropy.h"
#include "lockstep/nn/tensor_group.h"
#include "lockstep/nn/vocab_shard.h"

namespace lockstep::nn {

// Immutable; used by the group's thread.
class CrossEntropy {
 public:
  CrossEntropy(std::int64_t vocab, TensorGroup group);

  // Adds the losses (natural logarithm) of valid tokens to `loss`; the logits are used up. `labels`
  // is [n] of i64.
  void loss(const at::Tensor& logits, const at::Tensor& labels, ExactSum& loss) const;
  // The same, and returns the gradient of (sum of losses x seed) with respect to the logits as
  // elements of `type`: in their memory, or where that is narrower beside it and rounded once.
  at::Tensor loss_and_grad(at::Tensor logits, const at::Tensor& labels, double seed,
                           at::ScalarType type, ExactSum& loss) const;

 private:
  TensorGroup group_;
  VocabShard shard_;
};

}  // namespace lockstep::nn
