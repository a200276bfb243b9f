#include "lockstep/nn/embedding.h"

#include <ATen/ops/index_select.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/nn/flat_view.h"
#include "lockstep/nn/wide_rows.h"

namespace lockstep::nn {
namespace {

// Calls fn(row, position, count) for every run of consecutive positions among the rows that a rank
// has of sequences of `seq` tokens, whose first is `first` of all.
template <class Fn>
void for_each_run(std::int64_t first, std::int64_t rows, std::int64_t seq, Fn fn) {
  for (std::int64_t row = 0; row < rows;) {
    const std::int64_t position = (first + row) % seq;
    const std::int64_t count = std::min(seq - position, rows - row);
    fn(row, position, count);
    row += count;
  }
}

std::int64_t first_row(const TensorGroup& group, std::int64_t rows) {
  return group.shares_rows() ? group.index() * rows : 0;
}

// In the table's type, in the order of the tokens.
void add_rows(const at::Tensor& table, const at::Tensor& places, const at::Tensor& rows) {
  if (!is_narrow(rows)) {
    table.index_add_(0, places, rows);
    return;
  }
  for_row_blocks(rows, [&](std::int64_t begin, std::int64_t n) {
    table.index_add_(0, places.narrow(0, begin, n),
                     rows.narrow(0, begin, n).to(table.scalar_type()));
  });
}

// The same where the places follow one another.
void add_rows(const at::Tensor& table, const at::Tensor& rows) {
  if (!is_narrow(rows)) {
    table.add_(rows);
    return;
  }
  for_row_blocks(rows, [&](std::int64_t begin, std::int64_t n) {
    table.narrow(0, begin, n).add_(rows.narrow(0, begin, n).to(table.scalar_type()));
  });
}

}  // namespace

Embedding::Embedding(const model::ModelConfig& config, const model::Unit& unit,
                     const model::FlatLayout& flat, TensorGroup group)
    : group_(group),
      shard_(VocabShard::of(config.vocab, group)),
      hidden_(config.hidden),
      table_(place_of(unit, flat, {"embed.weight"})) {
  LS_CHECK(!config.scaled_embedding, "an embedding whose rows are used as they are");
  LS_CHECK(table_.size() == shard_.count * hidden_);
  if (model::positions(config) == model::Positions::kLearned)
    positions_ = place_of(unit, flat, {"embed.positions"});
}

at::Tensor Embedding::forward(const at::Tensor& params, const at::Tensor& tokens) const {
  const at::Tensor table = matrix_at(params, table_, hidden_);
  at::Tensor rows;
  if (group_.size() == 1) {
    rows = at::index_select(table, 0, tokens.reshape({-1}));
  } else {
    const TokenRows at(tokens.reshape({-1}), shard_);
    rows = at::index_select(table, 0, at.row);
    rows.masked_fill_(at.elsewhere.unsqueeze(1), 0.0);
  }
  rows = group_.reduce_rows(std::move(rows));
  add_positions(params, rows, tokens.size(1));
  return rows;
}

void Embedding::add_positions(const at::Tensor& params, const at::Tensor& out,
                              std::int64_t seq) const {
  if (positions_.size() == 0) return;
  const at::Tensor table = matrix_at(params, positions_, hidden_);
  LS_CHECK(seq <= table.size(0), seq, " tokens of a sequence and ", table.size(0), " positions");
  for_each_run(first_row(group_, out.size(0)), out.size(0), seq,
               [&](std::int64_t row, std::int64_t position, std::int64_t count) {
                 out.narrow(0, row, count).add_(table.narrow(0, position, count));
               });
}

void Embedding::add_position_grads(const at::Tensor& grads, const at::Tensor& d_out,
                                   std::int64_t seq, bool is_first) const {
  if (positions_.size() == 0) return;
  const at::Tensor table = matrix_at(grads, positions_, hidden_);
  if (is_first) table.zero_();
  for_each_run(first_row(group_, d_out.size(0)), d_out.size(0), seq,
               [&](std::int64_t row, std::int64_t position, std::int64_t count) {
                 add_rows(table.narrow(0, position, count), d_out.narrow(0, row, count));
               });
}

void Embedding::weight_grad(const at::Tensor& tokens, at::Tensor d_out, const at::Tensor& grads,
                            bool is_first) const {
  const at::Tensor table = matrix_at(grads, table_, hidden_);
  add_position_grads(grads, d_out, tokens.size(1), is_first);
  if (is_first) table.zero_();
  if (group_.size() == 1) return add_rows(table, tokens.reshape({-1}), d_out);
  const at::Tensor rows = group_.gather_rows(d_out);
  d_out.reset();
  const TokenRows at(tokens.reshape({-1}), shard_);
  rows.masked_fill_(at.elsewhere.unsqueeze(1), 0.0);
  add_rows(table, at.row, rows);
}

}  // namespace lockstep::nn
