#include "lockstep/nn/cross_entropy.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/sum.h>

namespace lockstep::nn {
namespace {

void add_losses(const at::Tensor& log_probs, const at::Tensor& labels, ExactSum& loss) {
  const at::Tensor picked = log_probs.to(at::kCPU, at::kDouble);
  const at::Tensor here = labels.to(at::kCPU);
  const auto* values = picked.const_data_ptr<double>();
  const auto* label = here.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < here.numel(); ++i)
    if (label[i] != kIgnored) loss.add(-values[i]);
}

// Rows of ignored labels become zero, the others are multiplied by the seed.
void scale_rows(const at::Tensor& grad, const at::Tensor& labels, double seed) {
  const at::Tensor weight = labels.ne(kIgnored).to(grad.scalar_type());
  grad.mul_(weight.mul_(seed).unsqueeze_(1));
}

// What all ranks together know of a chunk.
struct Totals {
  at::Tensor log_probs;  // [n]: of the labels
  at::Tensor share;      // [n]: turns this rank's exponentials into probabilities
};

// Logits become exponentials below this rank's greatest.
Totals exponentiate(const at::Tensor& logits, const TokenRows& labels, const TensorGroup& group) {
  const at::Tensor own = at::empty({3, logits.size(0)}, logits.options());
  at::Tensor most = own.select(0, 0), sum = own.select(0, 1), picked = own.select(0, 2);
  at::amax_out(most, logits, 1);
  at::Tensor column = picked.unsqueeze(1);
  at::gather_out(column, logits, 1, labels.row.unsqueeze(1));
  picked.masked_fill_(labels.elsewhere, 0.0);
  logits.sub_(most.unsqueeze(1)).exp_();
  at::sum_out(sum, logits, 1);

  const at::Tensor all = group.gather(own);  // [t, 3, n]
  const at::Tensor factors = all.select(1, 0), sums = all.select(1, 1);
  const at::Tensor greatest = at::amax(factors, 0);
  factors.sub_(greatest).exp_();
  const at::Tensor total = at::sum(sums.mul_(factors), 0);
  Totals totals;
  totals.log_probs = at::sum(all.select(1, 2), 0).sub_(greatest);
  totals.share = factors.select(0, group.index()).div(total);
  totals.log_probs.sub_(total.log_());
  return totals;
}

}  // namespace

CrossEntropy::CrossEntropy(std::int64_t vocab, TensorGroup group)
    : group_(group), shard_(VocabShard::of(vocab, group)) {}

void CrossEntropy::loss(const at::Tensor& logits, const at::Tensor& labels, ExactSum& loss) const {
  if (group_.size() == 1) return add_row_losses(logits, labels, loss);
  const Totals totals = exponentiate(logits, TokenRows(labels, shard_), group_);
  if (group_.index() == 0) add_losses(totals.log_probs, labels, loss);
}

at::Tensor CrossEntropy::loss_and_grad(at::Tensor logits, const at::Tensor& labels, double seed,
                                       at::ScalarType type, ExactSum& loss) const {
  if (group_.size() == 1) {
    at::Tensor grad = type == logits.scalar_type()
                          ? logits
                          : at::empty(logits.sizes(), logits.options().dtype(type));
    add_row_losses(logits, labels, seed, grad, loss);
    return grad;
  }
  {
    const TokenRows rows(labels, shard_);
    const Totals totals = exponentiate(logits, rows, group_);
    if (group_.index() == 0) add_losses(totals.log_probs, labels, loss);
    logits.mul_(totals.share.unsqueeze(1));
    const at::Tensor minus_one = rows.elsewhere.to(logits.scalar_type()).sub_(1.0);
    logits.scatter_add_(1, rows.row.unsqueeze(1), minus_one.unsqueeze(1));
  }
  scale_rows(logits, labels, seed);
  return logits.to(type);
}

}  // namespace lockstep::nn
