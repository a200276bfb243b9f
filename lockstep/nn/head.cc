#include "lockstep/nn/head.h"

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/nn/flat_view.h"
#include "lockstep/nn/norm.h"

namespace lockstep::nn {
namespace {

// [n, V]: natural logarithms of the probabilities.
at::Tensor log_probabilities(const at::Tensor& normed, const at::Tensor& weight) {
  at::Tensor logits = at::mm(normed, weight.t());
  at::_log_softmax_out(logits, logits, 1, /*half_to_float=*/false);
  return logits;
}

// [n, 1]: the column to look at; any for an ignored label.
at::Tensor columns_of(const at::Tensor& labels) { return labels.clamp_min(0).unsqueeze_(1); }

void add_losses(const at::Tensor& log_probs, const at::Tensor& columns, const at::Tensor& labels,
                ExactSum& loss) {
  const at::Tensor picked = log_probs.gather(1, columns).to(at::kCPU, at::kDouble);
  const at::Tensor here = labels.to(at::kCPU);
  const auto* values = picked.const_data_ptr<double>();
  const auto* label = here.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < here.numel(); ++i)
    if (label[i] != kIgnored) loss.add(-values[i]);
}

// Logarithms of the probabilities become the gradient of the logits, rows of ignored labels zero.
void turn_into_grad(const at::Tensor& log_probs, at::Tensor columns, const at::Tensor& labels,
                    double seed) {
  log_probs.exp_();
  log_probs.scatter_(1, columns, -1.0, "add");
  columns.reset();
  const at::Tensor weight = labels.ne(kIgnored).to(log_probs.scalar_type());
  log_probs.mul_(weight.mul_(seed).unsqueeze_(1));
}

}  // namespace

Head::Head(const arch::ModelConfig& config, const arch::Unit& unit, const arch::FlatLayout& flat,
           std::int64_t chunk)
    : vocab_(config.vocab),
      hidden_(config.hidden),
      chunk_(chunk),
      eps_(config.norm_eps),
      norm_(place_of(unit, flat, {"head.norm.weight"})),
      weight_(place_of(unit, flat, {"head.weight"})) {
  LS_CHECK(chunk_ >= 1, "a chunk of ", chunk_, " tokens");
  LS_CHECK(config.norm == arch::NormKind::kRmsNorm && config.logit_softcap == 0.0,
           "a head of an RMS norm and a plain projection");
  LS_CHECK(weight_.size() == vocab_ * hidden_);
}

void Head::loss(const at::Tensor& params, const at::Tensor& input, const at::Tensor& labels,
                ExactSum& loss) const {
  const at::Tensor flat_labels = labels.reshape({-1});
  const at::Tensor weight = matrix_at(params, weight_, hidden_);
  const at::Tensor normed = rms_scale(input, rms_rstd(input, eps_), vector_at(params, norm_));
  const std::int64_t tokens = input.size(0);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk_) {
    const std::int64_t n = std::min(chunk_, tokens - begin);
    const at::Tensor chunk_labels = flat_labels.narrow(0, begin, n);
    const at::Tensor log_probs = log_probabilities(normed.narrow(0, begin, n), weight);
    add_losses(log_probs, columns_of(chunk_labels), chunk_labels, loss);
  }
}

at::Tensor Head::loss_and_grad(const at::Tensor& params, at::Tensor input, const at::Tensor& labels,
                               double seed, const at::Tensor& grads, bool is_first,
                               ExactSum& loss) const {
  const at::Tensor flat_labels = labels.reshape({-1});
  const at::Tensor weight = matrix_at(params, weight_, hidden_);
  const at::Tensor weight_grad = matrix_at(grads, weight_, hidden_);
  const at::Tensor gain = vector_at(params, norm_);
  const at::Tensor rstd = rms_rstd(input, eps_);
  at::Tensor normed = rms_scale(input, rstd, gain);
  at::Tensor d = at::empty_like(normed);
  const std::int64_t tokens = input.size(0);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk_) {
    const std::int64_t n = std::min(chunk_, tokens - begin);
    const at::Tensor chunk_labels = flat_labels.narrow(0, begin, n);
    const at::Tensor chunk_normed = normed.narrow(0, begin, n);
    const at::Tensor logits = log_probabilities(chunk_normed, weight);
    at::Tensor columns = columns_of(chunk_labels);
    add_losses(logits, columns, chunk_labels, loss);
    turn_into_grad(logits, std::move(columns), chunk_labels, seed);
    at::Tensor chunk_d = d.narrow(0, begin, n);
    at::mm_out(chunk_d, logits, weight);
    add_product(weight_grad, logits, chunk_normed, is_first && begin == 0);
  }
  normed.reset();
  add_value(vector_at(grads, norm_), rms_grad(d, input, rstd, gain), is_first);
  return d;
}

}  // namespace lockstep::nn
