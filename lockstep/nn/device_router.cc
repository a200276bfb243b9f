#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <tuple>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/nn/device_kernels.h"
#include "lockstep/nn/router.h"
#include "lockstep/nn/wide_rows.h"
#include "lockstep/tensor/as_buffer.h"

namespace lockstep::nn::device {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Whether each of `choices`, [..., 1], is expert 0, 1, ...: [..., experts].
at::Tensor is_expert(const at::Tensor& choices, std::int64_t experts) {
  return at::eq(choices, at::arange(experts, choices.options()));
}

// Memory is the same on ranks that tell nothing.
void tell_tokens(PassRun& r, const at::Tensor& choices, std::int64_t experts) {
  const at::Tensor counts = at::sum(is_expert(choices.view({-1, 1}), experts), 0);
  at::Tensor tokens = r.inputs.router.device_tokens;
  if (tokens.defined() && RouterRows(r).tells) tokens.add_(counts);
}
void tell_losses(const PassRun& r, const at::Tensor& losses, const at::Tensor& words) {
  const at::Tensor less = losses.neg();
  const at::Tensor labels = at::zeros({losses.numel()}, losses.options().dtype(at::kLong));
  if (words.defined() && RouterRows(r).tells)
    add_less_values(words, less.view({losses.numel()}), labels);
}

// What experts are chosen by (router.cc).
at::Tensor rank_of(PassRun& r) {
  const at::Tensor& bias = r.inputs.router_bias;
  LS_CHECK(bias.defined() == r.unit.moe.router_bias, "a router without its selection bias");
  if (!bias.defined()) return r.in(0).clone();
  const at::Tensor scores = r.out(1);
  return at::add(scores, bias.to(scores.scalar_type()));
}

// Of equal ones argmax has the lower index (LibTorch's GreaterOrNan, SharedReduceOps.h); topk says
// nothing about them.
void take_greatest(at::Tensor left, at::Tensor choice) {
  at::argmax_out(choice, left, 1, /*keepdim=*/true);
  left.scatter_(1, choice, -kInfinity);
}

// Takes experts of all but the best groups out of `left`.
void close_groups(at::Tensor left, const model::Moe& moe) {
  const std::int64_t each = moe.experts / moe.groups;
  const at::Tensor grouped = left.view({left.size(0), moe.groups, each});
  at::Tensor best = moe.router_bias && each > 1 ? at::sum(std::get<0>(at::topk(grouped, 2, 2)), 2)
                                                : at::amax(grouped, 2);
  at::Tensor open = at::zeros(best.sizes(), best.options());
  at::Tensor choice = at::empty({left.size(0), 1}, best.options().dtype(at::kLong));
  for (std::int64_t i = 0; i < moe.top_groups; ++i) {
    take_greatest(best, choice);
    open.scatter_(1, choice, 1);
  }
  grouped.masked_fill_(at::eq(open, 0).unsqueeze(2), -kInfinity);
}

void choose(PassRun& r, const at::Tensor& choices) {
  at::Tensor left = rank_of(r);
  if (r.unit.moe.groups > 1) close_groups(left, r.unit.moe);
  for (std::int64_t i = 0; i < choices.size(1); ++i) take_greatest(left, choices.narrow(1, i, 1));
}

at::Tensor sum_of(const at::Tensor& scores, const model::Moe& moe) {
  at::Tensor sum = at::sum(scores, 1, /*keepdim=*/true);
  return moe.score == model::RouterScore::kSigmoid ? sum.add_(kLeastSum) : sum;
}

// What losses add to the gradients of shares becomes that of the scores.
at::Tensor added_to_scores(const at::Tensor& added, const at::Tensor& scores,
                           const model::Moe& moe) {
  const at::Tensor all = sum_of(scores, moe);
  const at::Tensor mean = at::sum(at::mul(added, scores), 1, /*keepdim=*/true).div_(all);
  return at::sub(added, mean).div_(all);
}

}  // namespace

void route(PassRun& r) {
  const model::Moe& moe = r.unit.moe;
  if (moe.score == model::RouterScore::kSoftmax)
    r.put(1, at::_softmax(widen(r.in(0)), 1, /*half_to_float=*/false));
  else
    r.put(1, at::sigmoid(widen(r.in(0))));
  choose(r, r.make(2));
  at::Tensor weights = at::gather(r.out(1), 1, r.out(2));
  if (moe.norm_topk_prob) weights.div_(sum_of(weights, moe));
  if (moe.routed_scale != 1.0) weights.mul_(moe.routed_scale);
  r.put(0, std::move(weights));
}

void route_grad(PassRun& r) {
  const at::Tensor d = r.in(0), scores = r.in(1), choices = r.in(2);
  const model::Moe& moe = r.unit.moe;
  tell_tokens(r, choices, scores.size(1));
  at::Tensor d_scores = at::zeros(scores.sizes(), scores.options());
  if (moe.norm_topk_prob) {
    at::Tensor weights = at::gather(scores, 1, choices);
    const at::Tensor sum = sum_of(weights, moe);
    const at::Tensor shared = at::sum(weights.div_(sum).mul_(d), 1, /*keepdim=*/true);
    d_scores.scatter_(1, choices, at::sub_out(weights, d, shared).div_(sum));
  } else {
    d_scores.scatter_(1, choices, d);
  }
  if (moe.routed_scale != 1.0) d_scores.mul_(moe.routed_scale);
  const bool softmax = moe.score == model::RouterScore::kSoftmax;
  if (r.part().in.size() > 3)
    d_scores.add_(softmax ? r.in(3) : added_to_scores(r.in(3), scores, moe));
  d_scores = softmax ? at::_softmax_backward_data(d_scores, scores, 1, scores.scalar_type())
                     : at::sigmoid_backward(d_scores, scores);
  r.put(0, d_scores.to(tensor::scalar_type_of(r.unit.dtype)));
}

void sigmoid(PassRun& r) { r.put(0, at::sigmoid(widen(r.in(0)))); }

void sigmoid_grad(PassRun& r) {
  const at::Tensor d = at::sigmoid_backward(r.in(0), r.in(1));
  r.put(0, d.to(tensor::scalar_type_of(r.unit.dtype)));
}

void count_choices(PassRun& r) {
  const at::Tensor choices = r.in(0);
  at::Tensor counts = r.make(0);
  at::sum_out(counts, is_expert(choices.view({counts.size(0), -1, 1}), counts.size(1)), 1);
}

void aux_loss_grad(PassRun& r) {
  const RouterRows rows(r);
  const at::Tensor scores = r.in(0), counts = r.in(1);
  at::Tensor d =
      at::index_select(
          counts, 0,
          at::arange(rows.first, rows.first + rows.count, counts.options()).floor_divide_(rows.seq))
          .to(scores.scalar_type());
  at::Tensor losses = at::sum(at::mul(scores, d), 1);
  if (r.unit.moe.score == model::RouterScore::kSigmoid)
    losses.div_(sum_of(scores, r.unit.moe).view({scores.size(0)}));
  tell_losses(r, losses, r.inputs.router.aux_words);
  r.put(0, d.mul_(aux_loss_factor(r)));
}

void z_loss_grad(PassRun& r) {
  at::Tensor d = r.turn(0);
  const at::Tensor logits = widen(r.in(1));
  at::Tensor probs = at::_log_softmax(logits, 1, /*half_to_float=*/false);
  const at::Tensor log_sum = at::sub(logits.narrow(1, 0, 1), probs.narrow(1, 0, 1));
  d.add_(probs.exp_().mul_(at::mul(log_sum, z_loss_factor(r))));
  tell_losses(r, at::mul(log_sum, log_sum), r.inputs.router.z_words);
}

}  // namespace lockstep::nn::device
