#include "lockstep/nn/head.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/nn/flat_view.h"
#include "lockstep/nn/norm.h"

namespace lockstep::nn {

Head::Head(const arch::ModelConfig& config, const arch::Unit& unit, const arch::FlatLayout& flat,
           std::int64_t chunk, TensorGroup group)
    : group_(group),
      entropy_(config.vocab, group),
      hidden_(config.hidden),
      chunk_(chunk),
      eps_(config.norm_eps),
      norm_(place_of(unit, flat, {"head.norm.weight"})),
      weight_(place_of(unit, flat, {"head.weight"})) {
  LS_CHECK(chunk_ >= 1, "a chunk of ", chunk_, " tokens");
  LS_CHECK(config.norm == arch::NormKind::kRmsNorm && config.logit_softcap == 0.0,
           "a head of an RMS norm and a plain projection");
  LS_CHECK(weight_.size() * group.size() == config.vocab * hidden_);
}

at::Tensor Head::logits(const at::Tensor& params, const at::Tensor& normed) const {
  return at::mm(normed, matrix_at(params, weight_, hidden_).t());
}

void Head::loss(const at::Tensor& params, const at::Tensor& input, const at::Tensor& labels,
                ExactSum& loss) const {
  const at::Tensor flat_labels = labels.reshape({-1});
  const at::Tensor normed =
      group_.enter(rms_scale(input, rms_rstd(input, eps_), vector_at(params, norm_)));
  const std::int64_t tokens = normed.size(0);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk_) {
    const std::int64_t n = std::min(chunk_, tokens - begin);
    entropy_.loss(logits(params, normed.narrow(0, begin, n)), flat_labels.narrow(0, begin, n),
                  loss);
  }
}

at::Tensor Head::loss_and_grad(const at::Tensor& params, at::Tensor input, const at::Tensor& labels,
                               double seed, const at::Tensor& grads, bool is_first,
                               ExactSum& loss) const {
  const at::Tensor flat_labels = labels.reshape({-1});
  const at::Tensor gain = vector_at(params, norm_);
  const at::Tensor rstd = rms_rstd(input, eps_);
  at::Tensor normed = group_.enter(rms_scale(input, rstd, gain));
  at::Tensor summand = at::empty_like(normed);
  const std::int64_t tokens = normed.size(0);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk_) {
    const std::int64_t n = std::min(chunk_, tokens - begin);
    const at::Tensor chunk_normed = normed.narrow(0, begin, n);
    const at::Tensor d_logits = logits(params, chunk_normed);
    entropy_.loss_and_grad(d_logits, flat_labels.narrow(0, begin, n), seed, loss);
    at::Tensor chunk_d = summand.narrow(0, begin, n);
    at::mm_out(chunk_d, d_logits, matrix_at(params, weight_, hidden_));
    add_product(matrix_at(grads, weight_, hidden_), d_logits, chunk_normed, is_first && begin == 0);
  }
  normed.reset();
  at::Tensor d = group_.leave(std::move(summand));
  add_value(vector_at(grads, norm_), rms_grad(d, input, rstd, gain), is_first);
  return d;
}

}  // namespace lockstep::nn
