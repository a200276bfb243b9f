// Cross-entropy of a chunk of n tokens whose logits the tensor ranks cut by vocabulary. Each rank
// has [n, V / t] of them; three numbers a token and rank travel: the greatest logit, the sum of
// exponentials below it, and the label's logit from the rank that has it (others bring zero). So
// every rank has every token's loss; the first of the group adds it, so that a sum over all ranks
// counts a token once. One rank alone has its own way (row_entropy.h). Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/base/exact_sum.h"
#include "lockstep/nn/row_entropy.h"
#include "lockstep/nn/vocab_shard.h"

namespace lockstep::nn {

// Makes the last `count` columns of logits so small that their exponentials are zero beside any
// logit's. Finite, so that a rank that has no others brings numbers, too.
void hide_padding(const at::Tensor& logits, std::int64_t count);

// Writes the three numbers, [3, n]; logits become exponentials below this rank's greatest.
void softmax_of_shard(const at::Tensor& logits, const TokenRows& labels, const at::Tensor& into);

// What all ranks together know of a chunk.
struct SoftmaxTotals {
  at::Tensor log_probs;  // [n]: of the labels
  at::Tensor share;      // [n]: turns this rank's exponentials into probabilities
};
// From the numbers of all ranks, [t, 3, n], which are used up.
SoftmaxTotals softmax_totals(const at::Tensor& all, std::int64_t rank);

// Adds the losses (natural logarithm) of valid tokens. `labels` is [n] of i64.
void add_losses(const at::Tensor& log_probs, const at::Tensor& labels, ExactSum& loss);

// Exponentials become probabilities, less one at the label: the gradient of a token's loss.
void softmax_less_one(const at::Tensor& exponentials, const at::Tensor& share,
                      const TokenRows& labels);
// Rows of ignored labels become zero, the others are multiplied by the seed.
void scale_rows(const at::Tensor& grad, const at::Tensor& labels, double seed);

}  // namespace lockstep::nn
