#include "lockstep/nn/ulysses.h"

#include <ATen/ops/sum.h>

#include <vector>

#include "lockstep/model/context.h"
#include "lockstep/tensor/view.h"

namespace lockstep::nn {
namespace {

using parts::Dim;
using tensor::view_of;

// [sequences, seq, columns], also of heads.
at::Tensor by_sequence(const at::Tensor& x, std::int64_t seq) {
  if (x.dim() == 4)
    return view_of(x, {x.size(0), x.size(1), x.size(2) * x.size(3)}, {x.stride(0), x.stride(1), 1},
                   0);
  return view_of(x, {x.size(0) / seq, seq, x.size(1)}, {seq * x.stride(0), x.stride(0), 1}, 0);
}
at::Tensor rows_of(const at::Tensor& x, std::int64_t begin, std::int64_t n) {
  return view_of(x, {x.size(0), n, x.size(2)}, x.strides(), begin * x.stride(1));
}
at::Tensor columns_of(const at::Tensor& x, std::int64_t begin, std::int64_t n) {
  return view_of(x, {x.size(0), x.size(1), n}, x.strides(), begin);
}
// A context rank's of pieces that lie one behind the other.
at::Tensor piece(const PassRun& r, const at::Tensor& pieces, std::int64_t rank) {
  const std::int64_t rows = pieces.size(0) / r.unit.context.size();
  return by_sequence(
      view_of(pieces, {rows, pieces.size(1)}, pieces.strides(), rank * rows * pieces.stride(0)),
      r.sizes.seq);
}

// Calls fn(a rank's tokens in a whole tensor, the same in its piece).
void for_tokens(const PassRun& r, const at::Tensor& pieces, const std::vector<at::Tensor>& whole,
                auto fn) {
  const std::int64_t cp = r.unit.context.size();
  for (std::int64_t rank = 0; rank < cp; ++rank)
    for (const model::PositionRun& run : model::position_runs({cp, rank}, r.sizes.seq)) {
      const at::Tensor rows = rows_of(piece(r, pieces, rank), run.row, run.count);
      std::int64_t column = 0;
      for (const at::Tensor& x : whole) {
        const at::Tensor all = by_sequence(x, r.sizes.seq_of(Dim::kN));
        fn(rows_of(all, run.position, run.count), columns_of(rows, column, all.size(2)));
        column += all.size(2);
      }
    }
}

std::vector<at::Tensor> operands(const PassRun& r) {
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < r.part().in.size(); ++i) all.push_back(r.in(i));
  return all;
}
std::vector<at::Tensor> outputs(PassRun& r) {
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < r.part().out.size(); ++i) all.push_back(r.make(i));
  return all;
}

}  // namespace

void deal_heads(PassRun& r) {
  const at::Tensor pieces = r.make(0);
  const std::int64_t cp = r.unit.context.size(), dim = r.sizes[Dim::kD];
  for (std::int64_t rank = 0; rank < cp; ++rank) {
    std::int64_t column = 0;
    for (const at::Tensor& x : operands(r)) {
      const at::Tensor all = by_sequence(x, r.sizes.seq);
      const model::HeadRange heads = model::head_range(all.size(2) / dim, cp, rank);
      const std::int64_t n = heads.count * dim;
      columns_of(piece(r, pieces, rank), column, n).copy_(columns_of(all, heads.begin * dim, n));
      column += n;
    }
  }
}

void whole_sequences(PassRun& r) {
  for_tokens(r, r.in(0), outputs(r),
             [](const at::Tensor& whole, const at::Tensor& piece) { whole.copy_(piece); });
}

void deal_tokens(PassRun& r) {
  for_tokens(r, r.make(0), operands(r),
             [](const at::Tensor& whole, const at::Tensor& piece) { piece.copy_(whole); });
}

// Ranks that have copies of a head come one after the other.
void all_heads(PassRun& r) {
  const at::Tensor pieces = r.in(0);
  const std::int64_t cp = r.unit.context.size(), dim = r.sizes[Dim::kD];
  std::int64_t column = 0;
  for (const at::Tensor& x : outputs(r)) {
    const at::Tensor all = by_sequence(x, r.sizes.seq);
    const std::int64_t heads = all.size(2) / dim, copies = heads < cp ? cp / heads : 1;
    const std::int64_t n = model::head_range(heads, cp, 0).count * dim;
    for (std::int64_t rank = 0; rank < cp; rank += copies) {
      at::Tensor own = columns_of(all, model::head_range(heads, cp, rank).begin * dim, n);
      const at::Tensor first = columns_of(piece(r, pieces, rank), column, n);
      if (copies == 1) {
        own.copy_(first);
        continue;
      }
      const std::int64_t apart = pieces.numel() / cp;  // from one rank's to the next
      at::sum_out(own,
                  view_of(first, {copies, own.size(0), own.size(1), n},
                          {apart, first.stride(0), first.stride(1), 1}, 0),
                  0);
    }
    column += n;
  }
}

}  // namespace lockstep::nn
