#include <ATen/ops/arange.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/nn/device_kernels.h"
#include "lockstep/nn/wide_rows.h"
#include "lockstep/parts/kernels.h"
#include "lockstep/tensor/as_buffer.h"

namespace lockstep::nn::device {
namespace {

using parts::ExpertBlocks;

at::Tensor flat(const at::Tensor& x) { return x.view({x.numel()}); }

}  // namespace

// A running count of the experts below each, over all rows: a stable sort whose memory is known,
// where LibTorch's sort takes scratch of its own.
void sort_rows(PassRun& r) {
  const at::Tensor choices = flat(r.in(0)), places = r.make(0), ends = r.make(1);
  const std::int64_t rows = choices.numel(), experts = ends.numel();
  at::Tensor below = at::empty({experts + 1, rows}, choices.options().dtype(at::kInt));
  at::lt_out(below, choices.unsqueeze(0), at::arange(experts + 1, choices.options()).unsqueeze(1));
  below.cumsum_(1);
  const at::Tensor last = below.select(1, rows - 1);
  at::Tensor place = at::index_select(last, 0, choices).sub_(1);
  place.sub_(at::gather(below, 0, choices.unsqueeze(0)).squeeze(0));
  place.add_(at::gather(below, 0, choices.add(1).unsqueeze(0)).squeeze(0));
  flat(places).copy_(place);
  ends.copy_(last.narrow(0, 1, experts));
}

void take_rows(PassRun& r) {
  const at::Tensor tokens = r.in(0), places = r.in(1);
  at::Tensor rows = r.make(0);
  for (std::int64_t i = 0; i < places.size(1); ++i)
    rows.index_copy_(0, places.select(1, i), tokens);
}

// Added in the order of choices and rounded once.
void return_rows(PassRun& r) {
  const at::Tensor rows = r.in(0), places = r.in(1);
  at::Tensor sum = widen(at::index_select(rows, 0, places.select(1, 0)));
  for (std::int64_t i = 1; i < places.size(1); ++i)
    sum.add_(at::index_select(rows, 0, places.select(1, i)));
  r.put(0, sum.to(rows.scalar_type()));
}

void take_weights(PassRun& r) { r.make(0).index_copy_(0, flat(r.in(1)), flat(r.in(0))); }

void return_weights(PassRun& r) {
  const at::Tensor places = r.in(1);
  r.put(0, at::index_select(r.in(0), 0, flat(places)).view(places.sizes()));
}

namespace {

// Rows of experts as blocks of equally many, which batched products take. LibTorch's product of
// groups of any size (_grouped_mm) is no match: its kernel is of bf16 into bf16 on compute
// capability 9.0 and 10.x; elsewhere the host waits for the groups' ends (GroupedMMUtils.h), and
// gradients of weights would be rounded to bf16.
//
// Block e has the first rows of expert e. Row (j + 1) size - 1 is of an expert that may have more
// than a block; those of its rows from (j + 1) size + begin mod size on are in further block j. So
// blocks are fewer than twice the experts, however few of them tokens choose.
struct Blocks {
  at::Tensor begins;   // by expert, its first row
  at::Tensor experts;  // by block
  at::Tensor rows;     // [blocks, size], also of other experts, behind the own
  at::Tensor ends;     // [blocks, 1] of the own

  at::Tensor rows_of(std::int64_t block, std::int64_t count) const {
    return flat(rows.narrow(0, block, count));
  }
};

Blocks blocks_of(const at::Tensor& ends, const ExpertBlocks& count) {
  const auto options = ends.options();
  const at::Tensor first = at::zeros({count.all()}, options);
  Blocks made = {first.narrow(0, 0, count.experts), at::empty({count.all()}, options), {}, {}};
  at::Tensor own = made.experts.narrow(0, 0, count.experts);
  at::arange_out(own, count.experts);
  made.begins.narrow(0, 1, count.experts - 1).copy_(ends.narrow(0, 0, count.experts - 1));
  if (count.more > 0) {
    at::Tensor begin = first.narrow(0, count.experts, count.more);
    at::Tensor of = made.experts.narrow(0, count.experts, count.more);
    at::arange_out(begin, count.size - 1, count.more * count.size, count.size);
    at::searchsorted_out(of, ends, begin, /*out_int32=*/false, /*right=*/true);
    begin.add_(at::index_select(made.begins, 0, of).remainder_(count.size)).add_(1);
  }
  made.rows = first.unsqueeze(1).add(at::arange(count.size, options));
  made.ends = at::index_select(ends, 0, made.experts).unsqueeze(1);
  return made;
}

// Where the rows of experts are among those of blocks.
at::Tensor places_in(const Blocks& blocks, const at::Tensor& ends, const ExpertBlocks& count) {
  at::Tensor row = at::arange(count.rows, ends.options());
  const at::Tensor expert = at::searchsorted(ends, row, /*out_int32=*/false, /*right=*/true);
  at::Tensor begin = at::index_select(blocks.begins, 0, expert), own = at::sub(row, begin);
  const at::Tensor is_more = own.ge(count.size);
  own.add_(expert, count.size);
  row.sub_(begin.remainder_(count.size)).add_((count.experts - 1) * count.size);
  return at::where(is_more, row, own);
}

// Calls body(first block, blocks, their experts) for blocks behind the experts' own.
void for_more(const Blocks& blocks, const ExpertBlocks& count, auto body) {
  for (std::int64_t i = 0; i < count.more; i += count.at_once()) {
    const std::int64_t block = count.experts + i, n = std::min(count.at_once(), count.more - i);
    body(block, n, blocks.experts.narrow(0, block, n));
  }
}

// x times the matrix of the row's expert, of `weights` [experts, ...].
at::Tensor expert_product(const at::Tensor& x, const at::Tensor& ends, const at::Tensor& weights,
                          bool transposes) {
  if (x.size(0) == 0) return at::empty({0, weights.size(transposes ? 1 : 2)}, x.options());
  const ExpertBlocks count(weights.size(0), x.size(0));
  const Blocks blocks = blocks_of(ends, count);
  blocks.rows.clamp_max_(count.rows - 1);
  const std::int64_t columns = weights.size(transposes ? 1 : 2);
  const at::Tensor made = at::empty({count.all() * count.size, columns}, x.options());
  const auto multiply = [&](std::int64_t block, std::int64_t n, const at::Tensor& matrices) {
    at::Tensor into =
        made.narrow(0, block * count.size, n * count.size).view({n, count.size, columns});
    const at::Tensor rows = at::index_select(x, 0, blocks.rows_of(block, n));
    at::bmm_out(into, rows.view({n, count.size, x.size(1)}),
                transposes ? matrices.transpose(1, 2) : matrices);
  };
  multiply(0, count.experts, weights);
  for_more(blocks, count, [&](std::int64_t block, std::int64_t n, const at::Tensor& experts) {
    multiply(block, n, at::index_select(weights, 0, experts));
  });
  return at::index_select(made, 0, places_in(blocks, ends, count));
}

at::Tensor by_expert(const at::Tensor& stacked, const at::Tensor& ends) {
  const std::int64_t experts = ends.numel();
  return stacked.view({experts, stacked.size(0) / experts, stacked.size(1)});
}

// out = a b + keep x out, by matrix. bf16 operands have an f32 result.
void multiply_all_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b, double keep) {
  const bool same = out.scalar_type() == a.scalar_type();
  if (same && keep == 0.0)
    at::bmm_out(out, a, b);
  else if (same)
    at::baddbmm_out(out, out, a, b, keep);
  else if (keep == 0.0)
    at::bmm_out(out, a, b, out.scalar_type());
  else
    at::baddbmm_out(out, out, a, b, out.scalar_type(), keep);
}

}  // namespace

void expert_linear(PassRun& r) {
  const at::Tensor x = r.in(0), ends = r.in(1);
  r.put(0, expert_product(x, ends, by_expert(r.weight(x.size(1)), ends), /*transposes=*/true));
}

void expert_linear_grad(PassRun& r) {
  const at::Tensor d = r.in(0), ends = r.in(1);
  const std::int64_t columns = r.layer().weight.size() / (ends.numel() * d.size(1));
  r.put(0, expert_product(d, ends, by_expert(r.weight(columns), ends), /*transposes=*/false));
}

// Blocks of one expert are added up one after the other, so that their order is known.
void expert_linear_weight(PassRun& r) {
  const at::Tensor x = r.in(0), d = r.in(1), ends = r.in(2);
  at::Tensor grads = by_expert(r.weight_grad(x.size(1)), ends);
  if (x.size(0) == 0) {  // other ranks sent none
    if (r.writes_grads()) grads.zero_();
    return;
  }
  const ExpertBlocks count(ends.numel(), x.size(0));
  const Blocks blocks = blocks_of(ends, count);
  const at::Tensor is_other = blocks.rows.ge(blocks.ends).unsqueeze(2);
  blocks.rows.clamp_max_(count.rows - 1);
  const auto multiply = [&](at::Tensor into, std::int64_t block, std::int64_t n, double keep) {
    const auto rows = [&](const at::Tensor& of) {
      return at::index_select(of, 0, blocks.rows_of(block, n)).view({n, count.size, of.size(1)});
    };
    at::Tensor d_rows = rows(d);
    d_rows.masked_fill_(is_other.narrow(0, block, n), 0.0);
    multiply_all_into(std::move(into), d_rows.transpose(1, 2), rows(x), keep);
  };
  multiply(grads, 0, count.experts, r.writes_grads() ? 0.0 : 1.0);
  for_more(blocks, count, [&](std::int64_t block, std::int64_t n, const at::Tensor& experts) {
    const at::Tensor sums = at::empty({n, grads.size(1), grads.size(2)}, grads.options());
    multiply(sums, block, n, 0.0);
    for (std::int64_t i = 0; i < n; ++i)
      grads.index_add_(0, experts.narrow(0, i, 1), sums.narrow(0, i, 1));
  });
}

void count_rows(PassRun& r) {
  const at::Tensor ends = r.in(0);
  at::Tensor counts = r.make(0);
  const std::int64_t more = counts.numel() - 1;
  counts.copy_(ends);
  counts.narrow(0, 1, more).sub_(ends.narrow(0, 0, more));
}

// Ends of what each rank sent to each expert, as rows come and as they are to stand; a row moves by
// as much as its end does. Both in one tensor, because LibTorch's sum over all of one takes scratch
// (ScanKernels.cpp).
void sort_met(PassRun& r) {
  const at::Tensor met = r.in(0), places = r.make(0), ends = r.make(1);
  const std::int64_t own = ends.numel(), all = met.numel(), ranks = all / own;
  at::Tensor upto = at::empty({2, all}, met.options());
  upto.select(0, 0).copy_(met);
  const at::Tensor sorted = upto.select(0, 1).view({own, ranks});
  sorted.copy_(met.view({ranks, own}).t());
  upto.cumsum_(1);
  ends.copy_(sorted.select(1, ranks - 1));
  at::Tensor moves = at::empty({all}, met.options());
  moves.view({ranks, own}).copy_(sorted.t());
  moves.sub_(upto.select(0, 0));
  at::Tensor row = at::arange(places.numel(), met.options());
  const at::Tensor from =
      at::searchsorted(upto.select(0, 0), row, /*out_int32=*/false, /*right=*/true);
  flat(places).copy_(row.add_(at::index_select(moves, 0, from)));
}

void expert_swiglu(PassRun& r) {
  const at::Tensor gate = r.in(0);
  at::Tensor y = widen(gate);
  y = is_narrow(gate) ? at::silu_(y) : at::silu(y);
  y.mul_(r.in(1)).mul_(r.in(2).view({-1, 1}));
  r.put(0, y.to(gate.scalar_type()));
}

void expert_swiglu_grad(PassRun& r) {
  const at::Tensor d = r.in(0), up = r.in(2), weights = r.in(3).view({-1, 1});
  const at::ScalarType type = d.scalar_type();
  const at::Tensor gate = widen(r.in(1));
  {
    at::Tensor y = at::silu(gate).mul_(d);
    r.put(2, at::sum(at::mul(y, up), 1).view(r.in(3).sizes()));
    r.put(1, y.mul_(weights).to(type));
  }
  at::Tensor d_gate = at::mul(weights, d).mul_(up);
  at::silu_backward_out(d_gate, d_gate, gate);
  r.put(0, d_gate.to(type));
}

}  // namespace lockstep::nn::device
