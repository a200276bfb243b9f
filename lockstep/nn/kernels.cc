#include "lockstep/nn/kernels.h"

#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmv.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/sum.h>

#include <array>
#include <cmath>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/attention_grad.h"
#include "lockstep/nn/column_sums.h"
#include "lockstep/nn/cross_entropy.h"
#include "lockstep/nn/device_kernels.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/experts.h"
#include "lockstep/nn/gelu.h"
#include "lockstep/nn/norm.h"
#include "lockstep/nn/router.h"
#include "lockstep/nn/row_entropy.h"
#include "lockstep/nn/scored_attention.h"
#include "lockstep/nn/softcap.h"
#include "lockstep/nn/swiglu.h"
#include "lockstep/nn/ulysses.h"
#include "lockstep/nn/wide_product.h"
#include "lockstep/nn/wide_rows.h"
#include "lockstep/tensor/view.h"

namespace lockstep::nn {
namespace {

using parts::Dim;
using parts::Kind;
using tensor::transposed;
using tensor::view_of;

// Of a norm over squares; where it is stored less one, a copy in f32 or wider.
at::Tensor gain_of(const PassRun& r) {
  at::Tensor gain = r.gain();
  if (!r.sizes.plus_one) return gain;
  return at::empty(gain.sizes(), gain.options().dtype(wide_type_of(gain))).copy_(gain).add_(1.0);
}
void rms_norm_kernel(PassRun& r) {
  r.put(1, rms_rstd(r.in(0), r.unit.norm_eps));
  r.put(0, rms_scale(r.in(0), r.out(1), gain_of(r)));
}
void rms_norm_again(PassRun& r) { r.put(0, rms_scale(r.in(0), r.in(1), gain_of(r))); }
void rms_norm_grad_kernel(PassRun& r) {
  r.put(1, rms_norm_grad(r.turn(0), r.in(1), r.in(2), gain_of(r)));
}

void squares(PassRun& r) { r.put(0, row_squares(heads_in_row(r.in(0)))); }
void rstd(PassRun& r) { squares_to_rstd(r.turn(0), r.all_columns(), r.unit.norm_eps); }
void wide_norm(PassRun& r) {
  const at::Tensor x = r.in(0);
  r.put(0, rms_scale(heads_in_row(x), r.in(1), gain_of(r)).view(x.sizes()));
}
void row_dots_kernel(PassRun& r) {
  RowDots made = row_dots(heads_in_row(r.in(0)), heads_in_row(r.in(1)), r.in(2), gain_of(r));
  r.put(0, std::move(made.dots));
  r.put(1, std::move(made.gain));
}
void wide_norm_grad_kernel(PassRun& r) {
  const at::Tensor d = heads_in_row(r.turn(0));
  wide_norm_grad(d, heads_in_row(r.in(1)), r.in(2), r.in(3), gain_of(r), r.all_columns());
}

void layer_norm_kernel(PassRun& r) {
  LayerNormed made = layer_norm(r.in(0), r.gain(), r.bias(), r.unit.norm_eps);
  r.put(0, std::move(made.y));
  r.put(1, std::move(made.rstd));
  r.put(2, std::move(made.mean));
}
void layer_norm_again(PassRun& r) {
  r.put(0, layer_norm(r.in(0), r.gain(), r.bias(), r.unit.norm_eps).y);
}
void layer_norm_grad_kernel(PassRun& r) {
  const bool in_place = is_narrow(r.in(0));
  LayerNormGrads made = layer_norm_grad(in_place ? r.turn(0) : r.in(0), r.in(1), r.in(2), r.in(3),
                                        r.gain(), r.bias());
  if (!in_place) r.put(0, std::move(made.x));
  r.put(1, std::move(made.gain));
  r.put(2, std::move(made.bias));
}

void linear(PassRun& r) {
  const at::Tensor x = r.in(0), weight = r.weight(x.size(1));
  r.put(0, r.by_vector(x) ? at::mv(weight, x[0]).unsqueeze(0) : at::mm(x, transposed(weight)));
}
at::Tensor sum_with_product(PassRun& r, const at::Tensor& summand) {
  const at::Tensor x = r.in(0), weight = r.weight(x.size(1));
  return r.by_vector(x) ? at::addmv(summand.view({-1}), weight, x[0]).unsqueeze(0)
                        : at::addmm(summand, x, transposed(weight));
}
void linear_bias(PassRun& r) { r.put(0, sum_with_product(r, r.bias())); }
void linear_add(PassRun& r) { r.put(0, sum_with_product(r, r.in(1))); }
void linear_grad(PassRun& r) {
  const at::Tensor d = r.in(0);
  r.put(0, at::mm(d, r.weight(r.layer().weight.size() / d.size(1))));
}
void linear_weight(PassRun& r) {
  const at::Tensor x = r.in(0);
  add_product(r.weight_grad(x.size(1)), r.in(1), x, r.writes_grads());
}

void add_bias(PassRun& r) { r.turn(0).add_(r.bias()); }
void bias_sum(PassRun& r) {
  const at::Tensor d = r.in(0);
  r.put(0, is_narrow(d) ? column_sums(d) : at::sum(d, 0));
}
void accumulate_bias(PassRun& r) {
  add_value(vector_at(r.grads(), r.layer().bias), r.in(0), r.writes_grads());
}
void accumulate(PassRun& r) {
  add_value(vector_at(r.grads(), r.layer().weight), r.in(0), r.writes_grads());
  if (r.part().in.size() > 1)
    add_value(vector_at(r.grads(), r.layer().bias), r.in(1), r.writes_grads());
}
// In the memory of either summand, or its own.
void add(PassRun& r) {
  if (!r.shares_memory(0)) return r.put(0, at::add(r.in(0), r.in(1)));
  const at::Tensor sum = r.out(0), first = r.in(0);
  sum.add_(sum.data_ptr() == first.data_ptr() ? r.in(1) : first);
}

void nothing(PassRun& /*r*/) {}

// Heads that lie side by side in one storage are turned together.
void rotate(PassRun& r, void (Rope::*turn)(const at::Tensor&, std::int64_t) const) {
  const std::size_t n = r.part().in.size();
  for (std::size_t i = 0; i < n;) {
    const at::Tensor first = r.turn(i);
    std::int64_t heads = first.size(2);
    for (++i; i < n; ++i) {
      const at::Tensor next = r.turn(i);
      const auto* end = first.const_data_ptr();
      end = static_cast<const char*>(end) + heads * first.size(3) * first.element_size();
      if (next.const_data_ptr() != end || next.stride(1) != first.stride(1)) break;
      heads += next.size(2);
    }
    const std::int64_t tokens = first.size(0) * first.size(1), width = heads * first.size(3);
    const Rope here = r.unit.rope->rows(r.inputs.past, r.sizes.seq);
    (here.*turn)(view_of(first, {tokens, width}, {first.stride(1), 1}, 0), heads);
  }
}
void rope(PassRun& r) { rotate(r, &Rope::rotate); }
void rope_back(PassRun& r) { rotate(r, &Rope::rotate_back); }

void attention_kernel(PassRun& r) {
  Attended made = attention({r.in(0), r.in(1), r.in(2)});
  r.put(0, std::move(made.out));
  r.put(1, std::move(made.lse));
}
void attention_grad_kernel(PassRun& r) {
  const HeadTensors of = {r.in(1), r.in(2), r.in(3)};
  if (!is_narrow(of.q)) {
    HeadTensors made = attention_grad(of, r.in(4), r.in(5), r.in(0));
    r.put(0, std::move(made.q));
    r.put(1, std::move(made.k));
    r.put(2, std::move(made.v));
    return;
  }
  for (const std::size_t i : {0U, 1U, 2U})
    if (!r.has_memory(i)) r.make(i);  // one for all three where the list joins them
  const auto by_head = [&](const at::Tensor& rows) { return rows.view(of.q.sizes()); };
  attention_grad(of, by_head(r.in(4)), r.in(5), by_head(r.in(0)), {r.out(0), r.out(1), r.out(2)});
}
Scores scores_of(const PassRun& r) {
  return {r.unit.scores.scale, r.unit.scores.cap, r.sizes.window};
}
void scored_attention_kernel(PassRun& r) {
  const at::Tensor out = r.make(0), lse = r.make(1);
  scored_attention({r.in(0), r.in(1), r.in(2)}, scores_of(r), out, lse);
}
void scored_attention_grad_kernel(PassRun& r) {
  for (const std::size_t i : {0U, 1U, 2U})
    if (!r.has_memory(i)) r.make(i);
  scored_attention_grad({r.in(1), r.in(2), r.in(3)}, scores_of(r), r.in(4), r.in(5), r.in(0),
                        {r.out(0), r.out(1), r.out(2)});
}

// Keys and values of sequences of `seq` tokens in rows [first_row, ...) of what joins both.
HeadTensors heads_in(const at::Tensor& q, const at::Tensor& keys, std::int64_t heads,
                     std::int64_t first_row, std::int64_t seq) {
  const std::int64_t head_dim = q.size(3), row = keys.stride(0);
  const auto half = [&](std::int64_t column) {
    return view_of(keys, {q.size(0), seq, heads, head_dim}, {seq * row, row, head_dim, 1},
                   first_row * row + column);
  };
  return {q, half(0), half(heads * head_dim)};
}
HeadTensors heads_in(const at::Tensor& q, const at::Tensor& keys, std::int64_t heads,
                     std::int64_t first_row) {
  return heads_in(q, keys, heads, first_row, q.size(1));
}
void join_keys(PassRun& r) {
  const at::Tensor k = r.in(0);
  const HeadTensors into = heads_in(k, r.make(0), k.size(2), 0);
  into.k.copy_(k);
  into.v.copy_(r.in(1));
}
void split_keys(PassRun& r) {
  const at::Tensor k = r.make(0);
  const HeadTensors from = heads_in(k, r.in(0), k.size(2), 0);
  k.copy_(from.k);
  r.make(1).copy_(from.v);
}
// Calls fn(first row of an owner's keys, its blocks, whether they are the first).
void for_key_owners(PassRun& r, auto fn) {
  const model::ContextPlace place = r.unit.context.place();
  const bool are_all = r.part().distance == parts::kAllRanks;
  for (const std::int64_t owner : parts::key_owners(r.part(), place))
    fn(are_all ? owner * r.sizes[Dim::kT] : 0,
       model::attention_blocks(place, owner, r.sizes.seq, r.sizes.window), owner == place.coord);
}
void attend_blocks(PassRun& r, const at::Tensor& q, const at::Tensor& keys, const at::Tensor& out,
                   const at::Tensor& lse) {
  for_key_owners(r, [&](std::int64_t row, const auto& blocks, bool is_first) {
    add_attention(heads_in(q, keys, r.sizes[Dim::kKv], row), scores_of(r), blocks, is_first, out,
                  lse);
  });
}
void block_attention(PassRun& r) {
  const at::Tensor out = r.make(0);
  attend_blocks(r, r.in(0), r.in(1), out, r.make(1));
}
void more_attention(PassRun& r) {
  const at::Tensor out = r.turn(0);
  attend_blocks(r, r.in(2), r.in(3), out, r.turn(1));
}
// Operands from `first` on: d, q, keys, out, lse.
void differentiate_blocks(PassRun& r, std::size_t first, const at::Tensor& d_q,
                          const at::Tensor& d_keys) {
  const at::Tensor q = r.in(first + 1), keys = r.in(first + 2);
  const std::int64_t heads = r.sizes[Dim::kKv];
  for_key_owners(r, [&](std::int64_t row, const auto& blocks, bool is_first) {
    HeadTensors into = heads_in(q, d_keys, heads, row);
    into.q = d_q;
    add_attention_grad(heads_in(q, keys, heads, row), scores_of(r), blocks, is_first,
                       r.in(first + 3), r.in(first + 4), r.in(first), into);
  });
}
void block_attention_grad(PassRun& r) {
  const at::Tensor d_q = r.make(0);
  differentiate_blocks(r, 0, d_q, r.make(1));
}
void more_attention_grad(PassRun& r) {
  const at::Tensor d_q = r.turn(0);
  differentiate_blocks(r, 1, d_q, r.make(1));
}

void cached_attention_kernel(PassRun& r) {
  const at::Tensor q = r.in(0), k = r.in(1), &cache = r.inputs.cached_keys;
  const std::int64_t heads = k.size(2), past = r.inputs.past, seq = q.size(1);
  LS_CHECK(q.size(0) == 1 && past + seq <= cache.size(0), "a cache of ", cache.size(0),
           " tokens for ", past, " and ", seq);
  const HeadTensors own = heads_in(k, cache, heads, past);
  own.k.copy_(k);
  own.v.copy_(r.in(2));
  Attended made = attention_over(heads_in(q, cache, heads, 0, past + seq), scores_of(r));
  r.put(0, std::move(made.out));
  r.put(1, std::move(made.lse));
}

void concat(PassRun& r) {
  if (r.has_memory(0)) return;  // the heads were written there
  const at::Tensor all = at::cat({r.in(0), r.in(1), r.in(2)}, 2);
  const std::int64_t tokens = all.size(0) * all.size(1), width = all.numel() / tokens;
  r.put(0, view_of(all, {tokens, width}, {width, 1}, 0));
}

void swiglu_kernel(PassRun& r) { r.put(0, swiglu(r.in(0))); }
void swiglu_grad_kernel(PassRun& r) { r.put(0, swiglu_grad(r.in(1), r.in(0))); }
void geglu_kernel(PassRun& r) { r.put(0, geglu(r.in(0))); }
void geglu_grad_kernel(PassRun& r) { r.put(0, geglu_grad(r.in(1), r.in(0))); }
void gelu_kernel(PassRun& r) { r.put(0, nn::gelu(r.in(0))); }
void gelu_grad_kernel(PassRun& r) { gelu_grad(r.in(1), r.turn(0)); }

void lookup_kernel(PassRun& r) {
  r.put(0, lookup(r.weight(r.sizes[Dim::kH]), r.inputs.tokens, r.unit.vocab, r.unit.group));
}
void lookup_weight(PassRun& r) {
  const at::Tensor table = r.weight_grad(r.sizes[Dim::kH]);
  if (r.writes_grads()) table.zero_();
  add_lookup_grads(table, r.inputs.tokens, r.in(0), r.unit.vocab, r.unit.group);
}
// The factor is rounded to the run's type, as transformers does.
void scale(PassRun& r) {
  const at::Tensor x = r.turn(0);
  x.mul_(at::full({}, std::sqrt(static_cast<double>(r.sizes[Dim::kH])), x.options()));
}
void positions(PassRun& r) {
  const at::Tensor table = r.weight(r.sizes[Dim::kH]);
  add_positions(table.narrow(0, r.inputs.past, table.size(0) - r.inputs.past), r.turn(0),
                r.sizes.seq, r.unit.group, r.unit.context.place());
}
void positions_weight(PassRun& r) {
  const at::Tensor table = r.weight_grad(r.sizes[Dim::kH]);
  if (r.writes_grads()) table.zero_();
  add_position_grads(table, r.in(0), r.sizes.seq, r.unit.group, r.unit.context.place());
}

void all_gather(PassRun& r) { r.issued(r.group().all_gather(r.in(0), r.make(0))); }
void reduce_scatter(PassRun& r) { r.issued(r.group().reduce_scatter(r.in(0), r.make(0))); }
void exchange(PassRun& r) { r.issued(r.group().exchange(r.in(0), r.make(0), r.part().distance)); }
void all_to_all(PassRun& r) { r.issued(r.group().all_to_all(r.in(0), r.make(0))); }
void all_reduce(PassRun& r) { r.issued(r.group().sum(r.turn(0))); }
void wait(PassRun& r) { r.wait(); }

void reserve(PassRun& r) { r.make(0); }
void logits(PassRun& r) {
  const at::Tensor x = r.in(0), weight = r.weight(x.size(1));
  if (r.by_vector(x))
    r.put(0, at::mv(weight, x[0]).unsqueeze(0));
  else
    multiply_into(r.make(0), x, transposed(weight), 0.0);
}
void logits_grad(PassRun& r) {
  at::Tensor rows = r.turn(0);
  at::mm_out(rows, r.in(1), r.weight(rows.size(1)));
}
void cap(PassRun& r) {
  const at::Tensor logits = r.turn(0);
  softcap(logits, r.unit.logit_cap, r.part().out.size() > 1 ? r.make(1) : at::Tensor());
}
void cap_grad(PassRun& r) { softcap_grad(r.turn(0), r.in(1)); }
void entropy(PassRun& r) { add_row_losses(r.in(0), r.labels(), *r.inputs.loss); }
void entropy_grad(PassRun& r) {
  const at::Tensor grad = r.shares_memory(0) ? r.turn(0) : r.make(0);
  add_row_losses(r.in(0), r.labels(), r.inputs.seed, grad, *r.inputs.loss);
}
void token_rows_kernel(PassRun& r) {
  TokenRows made = token_rows(r.labels(), r.unit.vocab);
  r.put(0, std::move(made.row));
  r.put(1, std::move(made.elsewhere));
}
void softmax(PassRun& r) {
  const at::Tensor logits = r.turn(0);
  hide_padding(logits, r.unit.vocab.padding);
  softmax_of_shard(logits, {r.in(1), r.in(2)}, r.make(1));
}
void totals(PassRun& r) {
  SoftmaxTotals made = softmax_totals(r.in(0), r.unit.group.index());
  r.put(0, std::move(made.log_probs));
  r.put(1, std::move(made.share));
}
void add_losses_kernel(PassRun& r) {
  if (r.unit.group.index() == 0) add_losses(r.in(0), r.labels(), *r.inputs.loss);
}
void minus_one(PassRun& r) { softmax_less_one(r.turn(0), r.in(1), {r.in(2), r.in(3)}); }
void scale_rows_kernel(PassRun& r) { scale_rows(r.turn(0), r.labels(), r.inputs.seed); }
void round(PassRun& r) { r.make(0).copy_(r.in(0)); }

struct Row {
  Kind kind;
  Kernel kernel;
  Kernel device = kernel;
};
constexpr std::array kRows = {
    Row{Kind::kRmsNorm, rms_norm_kernel, device::rms_norm},
    Row{Kind::kLayerNorm, layer_norm_kernel, device::layer_norm},
    Row{Kind::kGatherRows, nullptr},  // lowered to collectives, or to nothing
    Row{Kind::kReduceRows, nullptr},
    Row{Kind::kLinear, linear},
    Row{Kind::kLinearBias, linear_bias},
    Row{Kind::kBias, add_bias},
    Row{Kind::kSplit, nothing},
    Row{Kind::kRope, rope},
    Row{Kind::kSquares, squares, device::squares},
    Row{Kind::kSumRanks, nullptr},
    Row{Kind::kRstd, rstd},
    Row{Kind::kWideNorm, wide_norm, device::wide_norm},
    Row{Kind::kAttention, attention_kernel, device::attention},
    Row{Kind::kScoredAttention, scored_attention_kernel, device::attention},
    Row{Kind::kSwiGlu, swiglu_kernel},
    Row{Kind::kGeGlu, geglu_kernel, device::geglu},
    Row{Kind::kGelu, gelu_kernel, device::gelu},
    Row{Kind::kAdd, add},
    Row{Kind::kLookup, lookup_kernel},
    Row{Kind::kScale, scale},
    Row{Kind::kPositions, positions},
    Row{Kind::kRoute, route, device::route},
    Row{Kind::kSortRows, sort_rows, device::sort_rows},
    Row{Kind::kTakeRows, take_rows, device::take_rows},
    Row{Kind::kReturnRows, return_rows, device::return_rows},
    Row{Kind::kTakeWeights, take_weights, device::take_weights},
    Row{Kind::kReturnWeights, return_weights, device::return_weights},
    Row{Kind::kExpertLinear, expert_linear, device::expert_linear},
    Row{Kind::kExpertSwiGlu, expert_swiglu, device::expert_swiglu},
    Row{Kind::kSigmoid, sigmoid, device::sigmoid},
    Row{Kind::kCountRows, count_rows, device::count_rows},
    Row{Kind::kSortMet, sort_met, device::sort_met},
    Row{Kind::kDispatch, exchange_rows},
    Row{Kind::kCombine, exchange_rows},
    Row{Kind::kCountChoices, count_choices, device::count_choices},
    Row{Kind::kAuxLoss, nullptr},  // lowered to nothing
    Row{Kind::kZLoss, nullptr},
    Row{Kind::kRmsNormGrad, rms_norm_grad_kernel, device::rms_norm_grad},
    Row{Kind::kLayerNormGrad, layer_norm_grad_kernel, device::layer_norm_grad},
    Row{Kind::kLinearGrad, linear_grad},
    Row{Kind::kLinearWeight, linear_weight, device::linear_weight},
    Row{Kind::kBiasSum, bias_sum, device::bias_sum},
    Row{Kind::kAccumulate, accumulate},
    Row{Kind::kAccumulateBias, accumulate_bias},
    Row{Kind::kRopeBack, rope_back},
    Row{Kind::kRowDots, row_dots_kernel, device::row_dots},
    Row{Kind::kWideNormGrad, wide_norm_grad_kernel, device::wide_norm_grad},
    Row{Kind::kAttentionGrad, attention_grad_kernel, device::attention_grad},
    Row{Kind::kScoredAttentionGrad, scored_attention_grad_kernel, device::attention_grad},
    Row{Kind::kSwiGluGrad, swiglu_grad_kernel},
    Row{Kind::kGeGluGrad, geglu_grad_kernel, device::geglu_grad},
    Row{Kind::kGeluGrad, gelu_grad_kernel, device::gelu_grad},
    Row{Kind::kRouteGrad, route_grad, device::route_grad},
    Row{Kind::kExpertLinearGrad, expert_linear_grad, device::expert_linear_grad},
    Row{Kind::kExpertLinearWeight, expert_linear_weight, device::expert_linear_weight},
    Row{Kind::kExpertSwiGluGrad, expert_swiglu_grad, device::expert_swiglu_grad},
    Row{Kind::kSigmoidGrad, sigmoid_grad, device::sigmoid_grad},
    Row{Kind::kAuxLossGrad, aux_loss_grad, device::aux_loss_grad},
    Row{Kind::kZLossGrad, z_loss_grad, device::z_loss_grad},
    Row{Kind::kConcat, concat},
    Row{Kind::kLookupWeight, lookup_weight},
    Row{Kind::kPositionsWeight, positions_weight},
    Row{Kind::kRmsNormAgain, rms_norm_again, device::rms_norm_again},
    Row{Kind::kLayerNormAgain, layer_norm_again, device::layer_norm_again},
    Row{Kind::kLinearAdd, linear_add},
    Row{Kind::kAllGather, all_gather},
    Row{Kind::kReduceScatter, reduce_scatter},
    Row{Kind::kAllReduce, all_reduce},
    Row{Kind::kWait, wait},
    Row{Kind::kJoinKeys, join_keys},
    Row{Kind::kExchange, exchange},
    Row{Kind::kBlockAttention, block_attention, device::block_attention},
    Row{Kind::kMoreAttention, more_attention, device::more_attention},
    Row{Kind::kBlockAttentionGrad, block_attention_grad, device::block_attention_grad},
    Row{Kind::kMoreAttentionGrad, more_attention_grad, device::more_attention_grad},
    Row{Kind::kSplitKeys, split_keys},
    Row{Kind::kCachedAttention, cached_attention_kernel, nullptr},  // of one rank on a CPU
    Row{Kind::kDealHeads, deal_heads},
    Row{Kind::kAllToAll, all_to_all},
    Row{Kind::kWholeSequences, whole_sequences},
    Row{Kind::kDealTokens, deal_tokens},
    Row{Kind::kAllHeads, all_heads},
    Row{Kind::kReserve, reserve},
    Row{Kind::kLogits, logits, device::logits},
    Row{Kind::kCap, cap, device::cap},
    Row{Kind::kEntropy, entropy, device::entropy},
    Row{Kind::kEntropyGrad, entropy_grad, device::entropy_grad},
    Row{Kind::kTokenRows, token_rows_kernel},
    Row{Kind::kSoftmax, softmax},
    Row{Kind::kTotals, totals},
    Row{Kind::kAddLosses, add_losses_kernel, device::add_losses},
    Row{Kind::kMinusOne, minus_one},
    Row{Kind::kScaleRows, scale_rows_kernel},
    Row{Kind::kCapGrad, cap_grad, device::cap_grad},
    Row{Kind::kRound, round},
    Row{Kind::kLogitsGrad, logits_grad},
};
constexpr bool rows_are_by_kind() {
  for (std::size_t i = 0; i < kRows.size(); ++i)
    if (static_cast<std::size_t>(kRows[i].kind) != i) return false;
  return kRows.back().kind == Kind::kLogitsGrad;
}
static_assert(rows_are_by_kind());

}  // namespace

Kernel kernel_of(Kind kind, model::Kernels whose) {
  const Row& row = kRows[static_cast<std::size_t>(kind)];
  const Kernel kernel = whose == model::Kernels::kCpu ? row.kernel : row.device;
  LS_CHECK(kernel != nullptr, "no kernel for ", parts::to_text(kind));
  return kernel;
}

}  // namespace lockstep::nn
