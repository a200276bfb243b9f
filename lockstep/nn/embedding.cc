#include "lockstep/nn/embedding.h"

#include <ATen/ops/index_select.h>

#include "lockstep/base/check.h"
#include "lockstep/nn/flat_view.h"

namespace lockstep::nn {

Embedding::Embedding(const arch::ModelConfig& config, const arch::Unit& unit,
                     const arch::FlatLayout& flat)
    : vocab_(config.vocab), hidden_(config.hidden), table_(place_of(unit, flat, {"embed.weight"})) {
  LS_CHECK(!config.scaled_embedding && config.family != arch::Family::kGpt2,
           "an embedding that is a table and nothing else");
  LS_CHECK(table_.size() == vocab_ * hidden_);
}

at::Tensor Embedding::forward(const at::Tensor& params, const at::Tensor& tokens) const {
  return at::index_select(matrix_at(params, table_, hidden_), 0, tokens.reshape({-1}));
}

void Embedding::weight_grad(const at::Tensor& tokens, at::Tensor d_out, const at::Tensor& grads,
                            bool is_first) const {
  const at::Tensor table = matrix_at(grads, table_, hidden_);
  if (is_first) table.zero_();
  table.index_add_(0, tokens.reshape({-1}), d_out);
}

}  // namespace lockstep::nn
