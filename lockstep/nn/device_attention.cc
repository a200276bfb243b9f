#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/nn/device_kernels.h"
#include "lockstep/nn/wide_rows.h"
#include "lockstep/parts/kernels.h"
#include "lockstep/tensor/view.h"

namespace lockstep::nn::device {
namespace {

using model::PositionRun;
using parts::Kind;
using tensor::view_of;

Scores scores_of(const PassRun& r, const at::Tensor& q) {
  if (r.part().kind == Kind::kAttention || r.part().kind == Kind::kAttentionGrad)
    return {1.0 / std::sqrt(static_cast<double>(q.size(3)))};
  return {r.unit.scores.scale, r.unit.scores.cap, r.sizes.window};
}
bool is_flash(const Scores& scores, const at::Tensor& q) {
  return parts::is_flash_head(q.size(3)) && is_narrow(q) && scores.cap == 0;
}

// [batch, seq, heads, head_dim] of [T, heads x head_dim].
at::Tensor by_head(const at::Tensor& rows, const at::Tensor& like) {
  return rows.view(like.sizes());
}

// [batch, heads, seq], as the memory of [T, heads] is read.
at::Tensor by_query(const at::Tensor& lse, const at::Tensor& q) {
  return lse.view({q.size(0), q.size(2), q.size(1)});
}

// Keys or values: [ranks, batch, seq, heads, head_dim], of one rank or of several, one behind the
// other; and the position of every row of a sequence, in that order.
struct Keys {
  at::Tensor k, v;
  std::vector<PositionRun> runs;
};
Keys of_one(const at::Tensor& k, const at::Tensor& v) {
  return {k.unsqueeze(0), v.unsqueeze(0), {{0, 0, k.size(1)}}};
}

// [batch x heads, ranks x seq, head_dim], as wide as statistics; keys and values once for every
// head of queries.
at::Tensor heads_first(const at::Tensor& x, std::int64_t heads) {
  const std::int64_t ranks = x.size(0), batch = x.size(1), seq = x.size(2), own = x.size(3);
  const at::Tensor made = at::empty({batch, own, heads / own, ranks, seq, x.size(4)},
                                    x.options().dtype(wide_type_of(x)));
  made.copy_(x.permute({1, 3, 0, 2, 4}).unsqueeze(2));
  return made.view({batch * heads, ranks * seq, x.size(4)});
}
at::Tensor heads_first(const at::Tensor& x) { return heads_first(x.unsqueeze(0), x.size(2)); }
// Back `into` what is like heads_first's argument: what belongs to one of its heads is added up.
void write_heads(const at::Tensor& x, const at::Tensor& into) {
  const std::int64_t ranks = into.size(0), batch = into.size(1), own = into.size(3);
  const std::int64_t each = x.size(0) / batch / own;
  at::Tensor all = x.view({batch, own, each, ranks, into.size(2), into.size(4)});
  all = each == 1 ? all.squeeze(2) : all.sum(2);
  into.copy_(all.permute({2, 0, 3, 1, 4}));
}

at::Tensor positions_of(const std::vector<PositionRun>& runs, const at::Tensor& like) {
  std::int64_t rows = 0;
  for (const PositionRun& run : runs) rows += run.count;
  const at::Tensor made = at::empty({rows}, like.options().dtype(at::kLong));
  std::int64_t row = 0;
  for (const PositionRun& run : runs) {
    at::Tensor part = view_of(made, {run.count}, {1}, std::exchange(row, row + run.count));
    at::arange_out(part, run.position, run.position + run.count, 1);
  }
  return made;
}

// [batch x heads, queries, keys]; what a query does not see is minus infinity. Of capped scores
// `slope` gets derivatives.
at::Tensor all_scores(const at::Tensor& q, const std::vector<PositionRun>& queries,
                      const at::Tensor& k, const std::vector<PositionRun>& keys, const Scores& of,
                      at::Tensor* slope) {
  at::Tensor scores = at::bmm(q, k.transpose(1, 2)).mul_(of.scale);
  if (of.cap > 0) {
    scores.div_(of.cap).tanh_();
    if (slope != nullptr) *slope = scores.square().neg_().add_(1.0);
    scores.mul_(of.cap);
  }
  const at::Tensor at = positions_of(queries, q), other = positions_of(keys, q);
  const at::Tensor behind = at.unsqueeze(1).sub(other.unsqueeze(0));  // keys behind each query
  const at::Tensor hidden = behind.lt(0);
  if (of.window > 0) hidden.logical_or_(behind.ge(of.window));
  return scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

// Of [batch, heads, seq], what multiplies rows of [batch, seq, heads, head_dim].
at::Tensor for_rows(const at::Tensor& x) { return x.transpose(1, 2).unsqueeze(3); }

// Adds what queries see of these keys to `out` and `lse`, or writes it: then each must see one.
void attend(const at::Tensor& q, const std::vector<PositionRun>& queries, const Keys& keys,
            const Scores& of, bool is_first, const at::Tensor& out, const at::Tensor& lse) {
  const std::int64_t heads = q.size(2);
  const at::Tensor p =
      all_scores(heads_first(q), queries, heads_first(keys.k, heads), keys.runs, of, nullptr);
  // Of a query that sees nothing: a number, so that no difference of infinities arises.
  const at::Tensor most =
      at::amax(p, -1, /*keepdim=*/true).clamp_min_(std::numeric_limits<float>::lowest());
  p.sub_(most).exp_();
  const at::Tensor total = at::sum(p, -1, /*keepdim=*/true);
  if (is_first) {
    p.div_(total);
    lse.copy_(total.log_().add_(most).view(lse.sizes()));
    return write_heads(at::bmm(p, heads_first(keys.v, heads)), out.unsqueeze(0));
  }
  const at::Tensor all = at::logaddexp(lse, total.log_().add_(most).view(lse.sizes()));
  out.mul_(for_rows(lse.sub_(all).exp_()));
  most.sub_(all.view(most.sizes())).exp_();
  lse.copy_(all);
  p.mul_(most);
  const at::Tensor made = at::bmm(p, heads_first(keys.v, heads));
  out.add_(made.view({q.size(0), heads, q.size(1), q.size(3)}).transpose(1, 2));
}

// With probabilities p and d the gradient of the result: dv = p^T d, and that of the scores is
// p (d v^T - sum over a query's row of d out). That of queries is added, or written.
void differentiate(const at::Tensor& d, const at::Tensor& q,
                   const std::vector<PositionRun>& queries, const Keys& keys, const Scores& of,
                   const at::Tensor& out, const at::Tensor& lse, bool is_first,
                   const at::Tensor& d_q, const Keys& into) {
  const std::int64_t heads = q.size(2);
  const at::Tensor wide_q = heads_first(q), wide_k = heads_first(keys.k, heads);
  const at::Tensor wide_d = heads_first(d);
  at::Tensor slope;
  const at::Tensor p =
      all_scores(wide_q, queries, wide_k, keys.runs, of, of.cap > 0 ? &slope : nullptr)
          .sub_(lse.view({-1, q.size(1), 1}))
          .exp_();
  write_heads(at::bmm(p.transpose(1, 2), wide_d), into.v);
  const at::Tensor dots = at::sum(heads_first(out).mul_(wide_d), -1, /*keepdim=*/true);
  const at::Tensor d_scores = at::bmm(wide_d, heads_first(keys.v, heads).transpose(1, 2));
  d_scores.sub_(dots).mul_(p);
  if (slope.defined()) d_scores.mul_(slope);
  d_scores.mul_(of.scale);
  write_heads(at::bmm(d_scores.transpose(1, 2), wide_q), into.k);
  const at::Tensor made = at::bmm(d_scores, wide_k);
  if (is_first) return write_heads(made, d_q.unsqueeze(0));
  d_q.add_(made.view({q.size(0), heads, q.size(1), q.size(3)}).transpose(1, 2));
}

// Of whole sequences.
std::optional<std::int64_t> window_of(const Scores& scores) {
  return scores.window > 0 ? std::optional(scores.window - 1) : std::nullopt;
}
auto flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Scores& of,
           bool is_causal = true) {
  return at::_flash_attention_forward(q, k, v, {}, {}, q.size(1), k.size(1), 0.0, is_causal,
                                      /*return_debug_mask=*/false, of.scale, window_of(of));
}
auto flash_grad(const at::Tensor& d, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const at::Tensor& out, const at::Tensor& lse, const Scores& of,
                bool is_causal = true) {
  // Without dropout nobody reads the state of its random numbers.
  const at::Tensor unused = at::empty({2}, q.options().dtype(at::kUInt64));
  return at::_flash_attention_backward(d, q, k, v, out, lse, {}, {}, q.size(1), k.size(1), 0.0,
                                       is_causal, unused, unused, of.scale, window_of(of));
}

}  // namespace

void attention(PassRun& r) {
  const at::Tensor q = r.in(0), k = r.in(1), v = r.in(2);
  const Scores of = scores_of(r, q);
  if (is_flash(of, q)) {
    auto made = flash(q, k, v, of);
    r.put(0, std::get<0>(made).view({-1, q.size(2) * q.size(3)}));
    return r.put(1, std::move(std::get<1>(made)));
  }
  const at::Tensor out = r.make(0), lse = r.make(1);
  const Keys keys = of_one(k, v);
  attend(q, keys.runs, keys, of, /*is_first=*/true, by_head(out, q), by_query(lse, q));
}

void attention_grad(PassRun& r) {
  const at::Tensor q = r.in(1), k = r.in(2), v = r.in(3), lse = r.in(5);
  const Scores of = scores_of(r, q);
  const at::Tensor d = by_head(r.in(0), q), out = by_head(r.in(4), q);
  if (is_flash(of, q)) {
    auto made = flash_grad(d, q, k, v, out, lse, of);
    r.put(0, std::move(std::get<0>(made)));
    r.put(1, std::move(std::get<1>(made)));
    return r.put(2, std::move(std::get<2>(made)));
  }
  const at::Tensor d_q = r.make(0), d_k = r.make(1), d_v = r.make(2);
  const Keys keys = of_one(k, v);
  differentiate(d, q, keys.runs, keys, of, out, lse, /*is_first=*/true, d_q, of_one(d_k, d_v));
}

namespace {

// Keys of a context group that a part reads, side by side in `joined`: those of one rank, or of all
// in the order of the ranks.
std::vector<std::int64_t> owners_by_row(const PassRun& r) {
  std::vector<std::int64_t> owners = parts::key_owners(r.part(), r.unit.context.place());
  std::ranges::sort(owners);
  return owners;
}
Keys keys_in(const PassRun& r, const at::Tensor& q, const at::Tensor& joined) {
  const std::int64_t heads = r.sizes[parts::Dim::kKv], batch = q.size(0), seq = q.size(1);
  const std::int64_t dim = q.size(3), row = joined.stride(0), ranks = joined.size(0) / batch / seq;
  const auto half = [&](std::int64_t column) {
    return view_of(joined, {ranks, batch, seq, heads, dim},
                   {batch * seq * row, seq * row, row, dim, 1}, column);
  };
  Keys keys = {half(0), half(heads * dim), {}};
  for (const std::int64_t owner : owners_by_row(r))
    for (const PositionRun& run : model::position_runs({r.unit.context.size(), owner}, seq))
      keys.runs.push_back(run);
  return keys;
}
std::vector<PositionRun> own_positions(const PassRun& r, const at::Tensor& q) {
  return model::position_runs(r.unit.context.place(), q.size(1));
}
// The flash kernel counts windows from the last key on, which chunks of a sequence would shift.
bool is_flash_by_block(const Scores& of, const at::Tensor& q) {
  return is_flash(of, q) && of.window == 0;
}

at::Tensor rows_of(const at::Tensor& x, const PositionRun& run) {
  return x.narrow(1, run.row, run.count);
}
// Calls fn(queries, keys, slot of their owner in `joined`, whether queries have not yet seen a
// key).
void for_blocks(const PassRun& r, const at::Tensor& q, auto fn) {
  const model::ContextPlace place = r.unit.context.place();
  const bool are_all = r.part().distance == parts::kAllRanks;
  for (const std::int64_t owner : parts::key_owners(r.part(), place))
    for (const model::AttentionBlock& block :
         model::attention_blocks(place, owner, q.size(1), /*window=*/0))
      fn(block.queries, block.keys, are_all ? owner : 0, block.queries == block.keys);
}

void add_flash(PassRun& r, const at::Tensor& q, const Keys& keys, const Scores& of,
               const at::Tensor& out, const at::Tensor& lse) {
  for_blocks(
      r, q,
      [&](const PositionRun& queries, const PositionRun& run, std::int64_t slot, bool is_first) {
        const auto made = flash(rows_of(q, queries), rows_of(keys.k[slot], run),
                                rows_of(keys.v[slot], run), of, /*is_causal=*/is_first);
        const at::Tensor sum = rows_of(out, queries), &block = std::get<0>(made);
        const at::Tensor log = lse.narrow(2, queries.row, queries.count),
                         &block_log = std::get<1>(made);
        if (is_first) {
          sum.copy_(block);
          return static_cast<void>(log.copy_(block_log));
        }
        const at::Tensor all = at::logaddexp(log, block_log);
        sum.mul_(for_rows(log.sub_(all).exp_()));
        sum.add_(at::mul(block, for_rows(block_log.sub_(all).exp_())));
        log.copy_(all);
      });
}

void add_flash_grads(PassRun& r, const at::Tensor& d, const at::Tensor& q, const Keys& keys,
                     const Scores& of, const at::Tensor& out, const at::Tensor& lse,
                     const at::Tensor& d_q, const Keys& into) {
  into.k.zero_();
  into.v.zero_();
  for_blocks(
      r, q,
      [&](const PositionRun& queries, const PositionRun& run, std::int64_t slot, bool is_first) {
        const auto made =
            flash_grad(rows_of(d, queries), rows_of(q, queries), rows_of(keys.k[slot], run),
                       rows_of(keys.v[slot], run), rows_of(out, queries),
                       lse.narrow(2, queries.row, queries.count).contiguous(), of, is_first);
        const at::Tensor sum = rows_of(d_q, queries);
        is_first ? sum.copy_(std::get<0>(made)) : sum.add_(std::get<0>(made));
        rows_of(into.k[slot], run).add_(std::get<1>(made));
        rows_of(into.v[slot], run).add_(std::get<2>(made));
      });
}

void attend_keys(PassRun& r, const at::Tensor& q, const at::Tensor& joined, bool is_first,
                 const at::Tensor& out, const at::Tensor& lse) {
  const Scores of = scores_of(r, q);
  const Keys keys = keys_in(r, q, joined);
  if (is_flash_by_block(of, q)) return add_flash(r, q, keys, of, by_head(out, q), by_query(lse, q));
  attend(q, own_positions(r, q), keys, of, is_first, by_head(out, q), by_query(lse, q));
}

// Operands from `first` on: d, q, keys, out, lse.
void differentiate_keys(PassRun& r, std::size_t first, const at::Tensor& d_q,
                        const at::Tensor& d_keys) {
  const at::Tensor q = r.in(first + 1), d = by_head(r.in(first), q);
  const at::Tensor out = by_head(r.in(first + 3), q), lse = by_query(r.in(first + 4), q);
  const Scores of = scores_of(r, q);
  const Keys keys = keys_in(r, q, r.in(first + 2));
  if (!is_flash_by_block(of, q))
    return differentiate(d, q, own_positions(r, q), keys, of, out, lse, first == 0, d_q,
                         keys_in(r, q, d_keys));
  // Gradients of several blocks are added up wide, and rounded once.
  const at::Tensor sums =
      is_narrow(d_keys) ? at::empty(d_keys.sizes(), d_keys.options().dtype(wide_type_of(d_keys)))
                        : d_keys;
  add_flash_grads(r, d, q, keys, of, out, lse, d_q, keys_in(r, q, sums));
  if (is_narrow(d_keys)) d_keys.copy_(sums);
}

}  // namespace

void block_attention(PassRun& r) {
  const at::Tensor out = r.make(0), lse = r.make(1);
  attend_keys(r, r.in(0), r.in(1), /*is_first=*/true, out, lse);
}

void more_attention(PassRun& r) {
  const at::Tensor out = r.turn(0), lse = r.turn(1);
  attend_keys(r, r.in(2), r.in(3), /*is_first=*/false, out, lse);
}

void block_attention_grad(PassRun& r) {
  const at::Tensor d_q = r.make(0), d_keys = r.make(1);
  differentiate_keys(r, 0, d_q, d_keys);
}

void more_attention_grad(PassRun& r) {
  const at::Tensor d_q = r.turn(0), d_keys = r.make(1);
  differentiate_keys(r, 1, d_q, d_keys);
}

}  // namespace lockstep::nn::device
