#include "lockstep/nn/device_kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include <utility>

#include "lockstep/nn/cross_entropy.h"
#include "lockstep/nn/norm.h"
#include "lockstep/nn/swiglu.h"
#include "lockstep/nn/wide_rows.h"
#include "lockstep/tensor/view.h"

namespace lockstep::nn::device {
namespace {

using tensor::transposed;

constexpr const char* kTanh = "tanh";

at::Tensor widened(const at::Tensor& x) { return x.to(wide_type_of(x)); }

// Gains that are stored less one, as wide as statistics.
at::Tensor gain_of(const PassRun& r) {
  return r.sizes.plus_one ? widened(r.gain()).add(1.0) : r.gain();
}
// `x` in the type of the gain that it is multiplied by.
at::Tensor like_gain(const at::Tensor& x, const at::Tensor& gain) {
  return x.to(gain.scalar_type());
}

}  // namespace

void rms_norm(PassRun& r) {
  const at::Tensor x = r.in(0), gain = gain_of(r);
  auto [y, rstd] = at::_fused_rms_norm(like_gain(x, gain), {x.size(-1)}, gain, r.unit.norm_eps);
  r.put(0, y.to(x.scalar_type()));
  r.put(1, std::move(rstd));
}

void rms_norm_again(PassRun& r) {
  const at::Tensor x = r.in(0), gain = gain_of(r);
  r.put(0, std::get<0>(at::_fused_rms_norm(like_gain(x, gain), {x.size(-1)}, gain, r.unit.norm_eps))
               .to(x.scalar_type()));
}

void rms_norm_grad(PassRun& r) {
  const at::Tensor x = r.in(1), gain = gain_of(r);
  const auto [dx, d_gain] = at::_fused_rms_norm_backward(
      like_gain(r.in(0), gain), like_gain(x, gain), {x.size(-1)}, r.in(2), gain, {true, true});
  r.put(0, dx.to(x.scalar_type()));
  r.put(1, widened(d_gain));
}

// CUDA's kernel has statistics of f32 for rows of bf16, the CPU's has not: on copies both do.
void layer_norm(PassRun& r) {
  const at::Tensor x = r.in(0);
  LayerNormed made =
      nn::layer_norm(widened(x), widened(r.gain()), widened(r.bias()), r.unit.norm_eps);
  r.put(0, made.y.to(x.scalar_type()));
  r.put(1, std::move(made.rstd));
  r.put(2, std::move(made.mean));
}

void layer_norm_again(PassRun& r) {
  const at::Tensor x = r.in(0);
  r.put(0, nn::layer_norm(widened(x), widened(r.gain()), widened(r.bias()), r.unit.norm_eps)
               .y.to(x.scalar_type()));
}

void layer_norm_grad(PassRun& r) {
  const at::Tensor d = r.in(0);
  LayerNormGrads made = nn::layer_norm_grad(widened(d), widened(r.in(1)), r.in(2), r.in(3),
                                            widened(r.gain()), widened(r.bias()));
  r.put(0, made.x.to(d.scalar_type()));
  r.put(1, std::move(made.gain));
  r.put(2, std::move(made.bias));
}

void squares(PassRun& r) { r.put(0, row_squares(widened(heads_in_row(r.in(0))))); }

void wide_norm(PassRun& r) {
  const at::Tensor x = r.in(0);
  const at::Tensor y = rms_scale(widened(heads_in_row(x)), r.in(1), widened(gain_of(r)));
  r.put(0, y.to(x.scalar_type()).view(x.sizes()));
}

void row_dots(PassRun& r) {
  RowDots made = nn::row_dots(widened(heads_in_row(r.in(0))), widened(heads_in_row(r.in(1))),
                              r.in(2), widened(gain_of(r)));
  r.put(0, std::move(made.dots));
  r.put(1, std::move(made.gain));
}

void wide_norm_grad(PassRun& r) {
  const at::Tensor d = heads_in_row(r.turn(0)), wide = widened(d);
  nn::wide_norm_grad(wide, widened(heads_in_row(r.in(1))), r.in(2), r.in(3), widened(gain_of(r)),
                     r.all_columns());
  if (is_narrow(d)) d.copy_(wide);
}

namespace {

// out = a b + keep x out. bf16 operands may have an f32 result.
void multiply_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b, double keep) {
  const bool same = out.scalar_type() == a.scalar_type();
  if (same && keep == 0.0)
    at::mm_out(out, a, b);
  else if (same)
    at::addmm_out(out, out, a, b, keep);
  else if (keep == 0.0)
    at::mm_out(out, a, b, out.scalar_type());
  else
    at::addmm_out(out, out, a, b, out.scalar_type(), keep);
}

}  // namespace

void linear_weight(PassRun& r) {
  const at::Tensor x = r.in(0);
  multiply_into(r.weight_grad(x.size(1)), transposed(r.in(1)), x, r.writes_grads() ? 0.0 : 1.0);
}

void logits(PassRun& r) {
  const at::Tensor x = r.in(0);
  multiply_into(r.make(0), x, transposed(r.weight(x.size(1))), 0.0);
}

void bias_sum(PassRun& r) {
  const at::Tensor d = r.in(0);
  r.put(0, at::sum(d, 0, /*keepdim=*/false, wide_type_of(d)));
}

void geglu(PassRun& r) {
  const at::Tensor pair = r.in(0);
  r.put(0, at::gelu(glu_half(pair, 0), kTanh).mul_(glu_half(pair, 1)));
}

void geglu_grad(PassRun& r) {
  const at::Tensor d = r.in(0), pair = r.in(1), gate = glu_half(pair, 0);
  at::Tensor made = at::empty(pair.sizes(), pair.options());
  at::Tensor d_gate = glu_half(made, 0), d_up = glu_half(made, 1);
  at::gelu_out(d_up, gate, kTanh);
  d_up.mul_(d);
  at::mul_out(d_gate, d, glu_half(pair, 1));
  at::gelu_backward_out(d_gate, d_gate, gate, kTanh);
  r.put(0, std::move(made));
}

void gelu(PassRun& r) { r.put(0, at::gelu(r.in(0), kTanh)); }

void gelu_grad(PassRun& r) {
  const at::Tensor x = r.in(1);
  at::Tensor d = r.turn(0);
  at::gelu_backward_out(d, d, x, kTanh);
}

void cap(PassRun& r) {
  const at::Tensor logits = r.turn(0);
  logits.div_(r.unit.logit_cap).tanh_();
  if (r.part().out.size() > 1) {
    at::Tensor slope = r.make(1);
    at::mul_out(slope, logits, logits);
    slope.neg_().add_(1.0);
  }
  logits.mul_(r.unit.logit_cap);
}

void cap_grad(PassRun& r) { r.turn(0).mul_(r.in(1)); }

namespace {

// Adds -log_probs of valid labels, as words of an ExactSum (base/exact_sum.h), which kernels add up
// without rounding in whatever order.
void add_losses_to_words(at::Tensor& words, const at::Tensor& log_probs, const at::Tensor& labels) {
  ExactSum sum;
  nn::add_losses(log_probs, labels, sum);
  sum.add_to(words.mutable_data_ptr<std::int64_t>());
}

TORCH_LIBRARY_FRAGMENT(lockstep, library) {
  library.def("add_losses_(Tensor(a!) words, Tensor log_probs, Tensor labels) -> ()");
}
TORCH_LIBRARY_IMPL(lockstep, CPU, library) {
  library.impl("add_losses_", TORCH_FN(add_losses_to_words));
}

void add_to_loss(PassRun& r, const at::Tensor& log_probs) {
  add_less_values(r.inputs.loss_words, log_probs, r.labels());
}

// Of rows whose vocabulary is whole: as if the other ranks were none. Returns what turns the
// exponentials that `logits` become into probabilities.
at::Tensor add_row_losses(PassRun& r, const at::Tensor& logits, const TokenRows& rows) {
  at::Tensor own = at::empty({1, 3, logits.size(0)}, logits.options());
  softmax_of_shard(logits, rows, own.select(0, 0));
  SoftmaxTotals totals = softmax_totals(own, 0);
  add_to_loss(r, totals.log_probs);
  return std::move(totals.share);
}

}  // namespace

void add_less_values(at::Tensor words, const at::Tensor& values, const at::Tensor& labels) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("lockstep::add_losses_", "")
                             .typed<void(at::Tensor&, const at::Tensor&, const at::Tensor&)>();
  op.call(words, values, labels);
}

void entropy(PassRun& r) {
  const at::Tensor logits = r.in(0);
  add_row_losses(r, logits, token_rows(r.labels(), {0, logits.size(1)}));
}

void entropy_grad(PassRun& r) {
  const at::Tensor logits = r.in(0);
  const TokenRows rows = token_rows(r.labels(), {0, logits.size(1)});
  const at::Tensor share = add_row_losses(r, logits, rows);
  softmax_less_one(logits, share, rows);
  scale_rows(logits, r.labels(), r.inputs.seed);
  if (!r.shares_memory(0)) r.make(0).copy_(logits);
}

void add_losses(PassRun& r) {
  if (r.unit.group.index() == 0) add_to_loss(r, r.in(0));
}

}  // namespace lockstep::nn::device
