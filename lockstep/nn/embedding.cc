#include "lockstep/nn/embedding.h"

#include <ATen/ops/index_select.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/nn/wide_rows.h"

namespace lockstep::nn {
namespace {

// Calls fn(row, position, count) for every run of consecutive positions among the rows that a rank
// has of sequences of which `runs` are here, `seq` tokens; the first row is `first` of all.
template <class Fn>
void for_each_run(std::int64_t first, std::int64_t rows, std::int64_t seq,
                  const std::vector<model::PositionRun>& runs, Fn fn) {
  for (std::int64_t row = 0; row < rows;) {
    const std::int64_t at = (first + row) % seq;
    for (const model::PositionRun& run : runs) {
      const std::int64_t skipped = at - run.row;
      if (skipped < 0 || skipped >= run.count) continue;
      const std::int64_t count = std::min(run.count - skipped, rows - row);
      fn(row, run.position + skipped, count);
      row += count;
      break;
    }
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

at::Tensor lookup(const at::Tensor& table, const at::Tensor& tokens, VocabShard shard,
                  const TensorGroup& group) {
  if (group.size() == 1) return at::index_select(table, 0, tokens.reshape({-1}));
  const TokenRows at = token_rows(tokens.reshape({-1}), shard);
  at::Tensor rows = at::index_select(table, 0, at.row);
  rows.masked_fill_(at.elsewhere.unsqueeze(1), 0.0);
  return rows;
}

void add_lookup_grads(const at::Tensor& table, const at::Tensor& tokens, const at::Tensor& d,
                      VocabShard shard, const TensorGroup& group) {
  if (group.size() == 1) return add_rows(table, tokens.reshape({-1}), d);
  const TokenRows at = token_rows(tokens.reshape({-1}), shard);
  d.masked_fill_(at.elsewhere.unsqueeze(1), 0.0);
  add_rows(table, at.row, d);
}

void add_positions(const at::Tensor& table, const at::Tensor& rows, std::int64_t seq,
                   const TensorGroup& group, model::ContextPlace place) {
  LS_CHECK(seq * place.cp <= table.size(0), seq * place.cp, " tokens of a sequence and ",
           table.size(0), " positions");
  for_each_run(first_row(group, rows.size(0)), rows.size(0), seq, position_runs(place, seq),
               [&](std::int64_t row, std::int64_t position, std::int64_t count) {
                 rows.narrow(0, row, count).add_(table.narrow(0, position, count));
               });
}

void add_position_grads(const at::Tensor& table, const at::Tensor& d, std::int64_t seq,
                        const TensorGroup& group, model::ContextPlace place) {
  for_each_run(first_row(group, d.size(0)), d.size(0), seq, position_runs(place, seq),
               [&](std::int64_t row, std::int64_t position, std::int64_t count) {
                 add_rows(table.narrow(0, position, count), d.narrow(0, row, count));
               });
}

}  // namespace lockstep::nn
