#include "lockstep/nn/cross_entropy.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/sum.h>

#include <limits>

namespace lockstep::nn {

void hide_padding(const at::Tensor& logits, std::int64_t count) {
  if (count > 0)
    logits.narrow(1, logits.size(1) - count, count).fill_(std::numeric_limits<float>::lowest());
}

void softmax_of_shard(const at::Tensor& logits, const TokenRows& labels, const at::Tensor& into) {
  at::Tensor most = into.select(0, 0), sum = into.select(0, 1), picked = into.select(0, 2);
  at::amax_out(most, logits, 1);
  at::Tensor column = picked.unsqueeze(1);
  at::gather_out(column, logits, 1, labels.row.unsqueeze(1));
  picked.masked_fill_(labels.elsewhere, 0.0);
  logits.sub_(most.unsqueeze(1)).exp_();
  at::sum_out(sum, logits, 1);
}

SoftmaxTotals softmax_totals(const at::Tensor& all, std::int64_t rank) {
  const at::Tensor factors = all.select(1, 0), sums = all.select(1, 1);
  const at::Tensor greatest = at::amax(factors, 0);
  factors.sub_(greatest).exp_();
  const at::Tensor total = at::sum(sums.mul_(factors), 0);
  SoftmaxTotals totals;
  totals.log_probs = at::sum(all.select(1, 2), 0).sub_(greatest);
  totals.share = factors.select(0, rank).div(total);
  totals.log_probs.sub_(total.log_());
  return totals;
}

void add_losses(const at::Tensor& log_probs, const at::Tensor& labels, ExactSum& loss) {
  const at::Tensor picked = log_probs.to(at::kCPU, at::kDouble);
  const at::Tensor here = labels.to(at::kCPU);
  const auto* values = picked.const_data_ptr<double>();
  const auto* label = here.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < here.numel(); ++i)
    if (label[i] != kIgnored) loss.add(-values[i]);
}

void softmax_less_one(const at::Tensor& exponentials, const at::Tensor& share,
                      const TokenRows& labels) {
  exponentials.mul_(share.unsqueeze(1));
  const at::Tensor minus_one = labels.elsewhere.to(exponentials.scalar_type()).sub_(1.0);
  exponentials.scatter_add_(1, labels.row.unsqueeze(1), minus_one.unsqueeze(1));
}

void scale_rows(const at::Tensor& grad, const at::Tensor& labels, double seed) {
  const at::Tensor weight = labels.ne(kIgnored).to(grad.scalar_type());
  grad.mul_(weight.mul_(seed).unsqueeze_(1));
}

}  // namespace lockstep::nn
