#include "lockstep/nn/embedding.h"

#include <ATen/ops/index_select.h>

#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/nn/flat_view.h"

namespace lockstep::nn {

Embedding::Embedding(const arch::ModelConfig& config, const arch::Unit& unit,
                     const arch::FlatLayout& flat, TensorGroup group)
    : group_(group),
      shard_(VocabShard::of(config.vocab, group)),
      hidden_(config.hidden),
      table_(place_of(unit, flat, {"embed.weight"})) {
  LS_CHECK(!config.scaled_embedding && config.family != arch::Family::kGpt2,
           "an embedding that is a table and nothing else");
  LS_CHECK(table_.size() == shard_.count * hidden_);
}

at::Tensor Embedding::forward(const at::Tensor& params, const at::Tensor& tokens) const {
  const at::Tensor table = matrix_at(params, table_, hidden_);
  if (group_.size() == 1) return at::index_select(table, 0, tokens.reshape({-1}));
  at::Tensor rows;
  {
    const TokenRows at(tokens.reshape({-1}), shard_);
    rows = at::index_select(table, 0, at.row);
    rows.masked_fill_(at.elsewhere.unsqueeze(1), 0.0);
  }
  return group_.leave(std::move(rows));
}

void Embedding::weight_grad(const at::Tensor& tokens, at::Tensor d_out, const at::Tensor& grads,
                            bool is_first) const {
  const at::Tensor table = matrix_at(grads, table_, hidden_);
  if (is_first) table.zero_();
  if (group_.size() == 1) {
    table.index_add_(0, tokens.reshape({-1}), d_out);
    return;
  }
  const at::Tensor rows = group_.enter(d_out);
  d_out.reset();
  const TokenRows at(tokens.reshape({-1}), shard_);
  rows.masked_fill_(at.elsewhere.unsqueeze(1), 0.0);
  table.index_add_(0, at.row, rows);
}

}  // namespace lockstep::nn
