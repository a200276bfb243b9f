#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <utility>

#include "lockstep/nn/device_kernels.h"
#include "lockstep/nn/router.h"
#include "lockstep/nn/wide_rows.h"
#include "lockstep/tensor/as_buffer.h"

namespace lockstep::nn::device {
namespace {

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

}  // namespace

// Of equal logits argmax has the lower index (LibTorch's GreaterOrNan, SharedReduceOps.h); topk
// says nothing about them.
void route(PassRun& r) {
  at::Tensor left = r.in(0).clone();
  r.put(1, at::_softmax(widen(left), 1, /*half_to_float=*/false));
  const at::Tensor choices = r.make(2);
  for (std::int64_t i = 0; i < choices.size(1); ++i) {
    at::Tensor choice = choices.narrow(1, i, 1);
    at::argmax_out(choice, left, 1, /*keepdim=*/true);
    left.scatter_(1, choice, -std::numeric_limits<double>::infinity());
  }
  at::Tensor weights = at::gather(r.out(1), 1, choices);
  if (r.unit.normalizes_top_k) weights.div_(at::sum(weights, 1, /*keepdim=*/true));
  r.put(0, std::move(weights));
}

void route_grad(PassRun& r) {
  const at::Tensor d = r.in(0), probs = r.in(1), choices = r.in(2);
  tell_tokens(r, choices, probs.size(1));
  at::Tensor d_probs = at::zeros(probs.sizes(), probs.options());
  if (r.unit.normalizes_top_k) {
    at::Tensor weights = at::gather(probs, 1, choices);
    const at::Tensor sum = at::sum(weights, 1, /*keepdim=*/true);
    const at::Tensor shared = at::sum(weights.div_(sum).mul_(d), 1, /*keepdim=*/true);
    d_probs.scatter_(1, choices, at::sub_out(weights, d, shared).div_(sum));
  } else {
    d_probs.scatter_(1, choices, d);
  }
  if (r.part().in.size() > 3) d_probs.add_(r.in(3));
  d_probs = at::_softmax_backward_data(d_probs, probs, 1, probs.scalar_type());
  r.put(0, d_probs.to(tensor::scalar_type_of(r.unit.dtype)));
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
  const at::Tensor probs = r.in(0), counts = r.in(1);
  at::Tensor d =
      at::index_select(
          counts, 0,
          at::arange(rows.first, rows.first + rows.count, counts.options()).floor_divide_(rows.seq))
          .to(probs.scalar_type());
  const at::Tensor losses = at::sum(at::mul(probs, d), 1);
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
