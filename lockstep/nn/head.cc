#include "lockstep/nn/head.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/nn/wide_product.h"
#include "lockstep/nn/wide_rows.h"

namespace lockstep::nn {

Head::Head(const model::ModelConfig& config, const model::Unit& unit, const model::FlatLayout& flat,
           std::int64_t chunk, TensorGroup group)
    : group_(group),
      entropy_(config.vocab, group),
      chunk_(chunk),
      norm_(config, unit, flat, "head.norm"),
      projection_(unit, flat, {"head"}, config.vocab / group.size(), config.hidden) {
  LS_CHECK(chunk_ >= 1, "a chunk of ", chunk_, " tokens");
  LS_CHECK(config.logit_softcap == 0.0 && !projection_.has_bias(), "logits are a plain product");
}

at::Tensor Head::logits(const at::Tensor& params, const at::Tensor& normed) const {
  const at::Tensor weight = projection_.weight(params);
  at::Tensor made =
      at::empty({normed.size(0), weight.size(0)}, normed.options().dtype(wide_type_of(normed)));
  multiply_into(made, normed, weight.t(), 0.0);
  return made;
}

void Head::loss(const at::Tensor& params, const at::Tensor& input, const at::Tensor& labels,
                ExactSum& loss) const {
  const at::Tensor flat_labels = labels.reshape({-1});
  RowStats stats;
  const at::Tensor normed = group_.gather_rows(norm_.forward(params, input, stats));
  stats = {};
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
  RowStats stats;
  at::Tensor normed = group_.gather_rows(norm_.forward(params, input, stats));
  at::Tensor summand = at::empty_like(normed);
  const std::int64_t tokens = normed.size(0);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk_) {
    const std::int64_t n = std::min(chunk_, tokens - begin);
    const at::Tensor chunk_normed = normed.narrow(0, begin, n);
    const at::Tensor d_logits =
        entropy_.loss_and_grad(logits(params, chunk_normed), flat_labels.narrow(0, begin, n), seed,
                               normed.scalar_type(), loss);
    at::Tensor chunk_d = summand.narrow(0, begin, n);
    at::mm_out(chunk_d, d_logits, projection_.weight(params));
    projection_.add_weight_grad(grads, d_logits, chunk_normed, is_first && begin == 0);
  }
  normed.reset();
  at::Tensor d =
      group_.reduce_rows(std::move(summand));  // by itself, so that the summand ends here
  NormGrads made;
  d = norm_.grad(params, std::move(d), input, stats, made);
  norm_.add_grads(made, grads, is_first);
  return d;
}

}  // namespace lockstep::nn
