// Attention with windows and soft caps beside blocks of gemma2 and mistral, which block_test.cc
// holds to autograd: what no block shows.
#include "lockstep/nn/scored_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/nn/oracle.h"

namespace lockstep::nn {
namespace {

struct Made {
  at::Tensor out, lse;
  HeadTensors grads;
};

HeadTensors heads_of(std::int64_t batch, std::int64_t seq, std::int64_t heads, std::int64_t kv,
                     at::ScalarType type) {
  return {random("q", {batch, seq, heads, 16}, type, 2.0),
          random("k", {batch, seq, kv, 16}, type, 2.0), random("v", {batch, seq, kv, 16}, type)};
}

Made run(const HeadTensors& of, const Scores& scores, const at::Tensor& d_out) {
  const auto wide = of.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const std::int64_t batch = of.q.size(0), seq = of.q.size(1), heads = of.q.size(2);
  Made made = {at::empty({batch * seq, heads * 16}, of.q.options()),
               at::empty({batch, heads, seq}, of.q.options().dtype(wide)),
               {at::empty(of.q.sizes(), of.q.options()), at::empty(of.k.sizes(), of.q.options()),
                at::empty(of.v.sizes(), of.q.options())}};
  scored_attention(of, scores, made.out, made.lse);
  scored_attention_grad(of, scores, made.out, made.lse, d_out, made.grads);
  return made;
}

// Without a cap and with a window that all keys are in, it is LibTorch's, over several tiles too.
TEST(ScoredAttention, IsAttentionWhereNothingIsSpecial) {
  for (const std::int64_t seq : {1, 40, 300}) {
    const HeadTensors of = heads_of(2, seq, 4, 2, at::kDouble);
    const at::Tensor d_out = random("d", {2 * seq, 64}, at::kDouble);
    const Attended flash = attention(of);
    const HeadTensors grads = attention_grad(of, flash.out, flash.lse, d_out);
    for (const std::int64_t window : {std::int64_t{0}, seq, seq + 5}) {
      const Made made = run(of, {0.25, 0.0, window}, d_out);
      EXPECT_LE(distance(made.out, flash.out), 1e-13) << seq;
      EXPECT_LE(distance(made.lse, flash.lse), 1e-13) << seq;
      EXPECT_LE((made.grads.q - grads.q).abs().max().item<double>(), 1e-12) << seq;
      EXPECT_LE((made.grads.k - grads.k).abs().max().item<double>(), 1e-12) << seq;
      EXPECT_LE(distance(made.grads.v, grads.v), 1e-12) << seq;
    }
  }
}

// Bits of a head are those it has alone: tensor ranks and microbatches cut between heads and
// sequences.
TEST(ScoredAttention, BitsOfAHeadDependOnItAlone) {
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat, at::kDouble}) {
    const HeadTensors all = heads_of(3, 150, 6, 3, type);
    const at::Tensor d_out = random("d", {3 * 150, 96}, type);
    const Scores scores = {0.3, 2.0, 37};
    const Made whole = run(all, scores, d_out);
    for (const auto& [b, kv] : {std::pair{0, 2}, {2, 1}}) {
      const auto part = [b = b, kv = kv](const at::Tensor& x, std::int64_t share) {
        return x.narrow(0, b, 1).narrow(2, kv * share, share);
      };
      const HeadTensors one = {part(all.q, 2), part(all.k, 1), part(all.v, 1)};
      const at::Tensor d = part(d_out.view({3, 150, 6, 16}), 2).reshape({150, 32});
      const Made alone = run(one, scores, d);
      EXPECT_TRUE(
          at::equal(alone.out, part(whole.out.view({3, 150, 6, 16}), 2).reshape({150, 32})));
      EXPECT_TRUE(at::equal(alone.lse.select(0, 0), whole.lse.select(0, b).narrow(0, 2 * kv, 2)));
      EXPECT_TRUE(at::equal(alone.grads.q, part(whole.grads.q, 2)));
      EXPECT_TRUE(at::equal(alone.grads.k, part(whole.grads.k, 1)));
      EXPECT_TRUE(at::equal(alone.grads.v, part(whole.grads.v, 1)));
    }
  }
}

// Of bf16 heads, statistics and sums are f32: results are roundings of what f64 has.
TEST(ScoredAttention, NarrowHeadsAreRoundedOnce) {
  const HeadTensors of = heads_of(2, 150, 4, 2, at::kBFloat16);
  const at::Tensor d_out = random("d", {300, 64}, at::kBFloat16);
  const auto exact = [](const at::Tensor& x) { return x.to(at::kDouble); };
  const Scores scores = {0.25, 2.0, 40};
  const Made narrow = run(of, scores, d_out);
  const Made wide = run({exact(of.q), exact(of.k), exact(of.v)}, scores, exact(d_out));
  EXPECT_LE(distance(narrow.lse, wide.lse), 1e-6);
  const double rounding = std::ldexp(1.0, -8);
  EXPECT_LE(distance(narrow.out, wide.out), rounding);
  EXPECT_LE(distance(narrow.grads.v, wide.grads.v), rounding);
  EXPECT_LE(distance(narrow.grads.q, wide.grads.q), rounding);
  EXPECT_LE(distance(narrow.grads.k, wide.grads.k), rounding);
}

// Rows of `x`, [batch, seq, ...], that are at a place.
at::Tensor rows_at(const at::Tensor& x, model::ContextPlace place, std::int64_t seq) {
  std::vector<at::Tensor> parts;
  for (const model::PositionRun& run : position_runs(place, seq))
    parts.push_back(x.narrow(1, run.position, run.count));
  return at::cat(parts, 1);
}

// The ranks of a context group, one after the other: what each adds up over the keys of all is its
// rows of attention over whole sequences; gradients of keys are the sums of what ranks find.
void expect_whole(const HeadTensors& of, const Scores& scores, std::int64_t cp, double bound) {
  const auto type = of.q.scalar_type();
  const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const std::int64_t batch = of.q.size(0), heads = of.q.size(2), seq = of.q.size(1) / cp;
  const at::Tensor d_out = random("d", {batch * seq * cp, heads * 16}, type);
  const auto by_head = [&](const at::Tensor& x) { return x.view(of.q.sizes()); };
  const Made whole = run(of, scores, d_out);
  at::Tensor d_k = at::zeros(of.k.sizes(), at::kDouble), d_v = d_k.clone();
  for (std::int64_t rank = 0; rank < cp; ++rank) {
    const model::ContextPlace place = {cp, rank};
    const auto own = [&](const at::Tensor& x) { return rows_at(x, place, seq); };
    const at::Tensor q = own(of.q), d = own(by_head(d_out)).view({-1, heads * 16});
    const at::Tensor out = at::empty(d.sizes(), d.options().dtype(wide));
    const at::Tensor lse = at::empty({batch, heads, seq}, out.options());
    const at::Tensor d_q = at::empty(q.sizes(), out.options());
    const auto for_owners = [&](auto fn) {
      for (std::int64_t i = 0; i < cp; ++i) {  // its own first
        const model::ContextPlace owner = {cp, (rank + i) % cp};
        fn(HeadTensors{q, rows_at(of.k, owner, seq), rows_at(of.v, owner, seq)}, owner,
           attention_blocks(place, owner.coord, seq, scores.window));
      }
    };
    for_owners([&](const HeadTensors& heads_of_owner, model::ContextPlace owner, auto blocks) {
      add_attention(heads_of_owner, scores, blocks, owner == place, out, lse);
    });
    EXPECT_LE(distance(out, own(by_head(whole.out)).view(out.sizes())), bound);
    EXPECT_LE(distance(lse, rows_at(whole.lse.transpose(1, 2), place, seq).transpose(1, 2)), 1e-6);
    for_owners([&](const HeadTensors& heads_of_owner, model::ContextPlace owner, auto blocks) {
      const HeadTensors into = {d_q, at::empty_like(heads_of_owner.k),
                                at::empty_like(heads_of_owner.v)};
      add_attention_grad(heads_of_owner, scores, blocks, owner == place, out.to(type), lse, d,
                         into);
      for (const model::PositionRun& run : position_runs(owner, seq)) {
        d_k.narrow(1, run.position, run.count).add_(into.k.narrow(1, run.row, run.count));
        d_v.narrow(1, run.position, run.count).add_(into.v.narrow(1, run.row, run.count));
      }
    });
    EXPECT_LE(distance(d_q, own(whole.grads.q)), 2 * bound);
  }
  EXPECT_LE(distance(d_k, whole.grads.k), 2 * bound);
  EXPECT_LE(distance(d_v, whole.grads.v), 2 * bound);
}

TEST(ScoredAttention, BlocksOfAContextGroupAddUpToWholeSequences) {
  for (const std::int64_t cp : {1, 2, 3, 4})
    for (const std::int64_t chunk : {1, 7, 150})
      for (const std::int64_t window : {0, 2, 9, 160}) {
        SCOPED_TRACE(testing::Message()
                     << cp << " ranks, chunks of " << chunk << ", window " << window);
        const Scores scores = {0.25, window == 9 ? 2.0 : 0.0, window};
        expect_whole(heads_of(2, 2 * chunk * cp, 4, 2, at::kDouble), scores, cp, 1e-13);
      }
}

// Results of narrow heads are rounded once by whole attention; here keys' once by every rank.
TEST(ScoredAttention, BlocksOfNarrowHeadsAddUpWide) {
  expect_whole(heads_of(2, 160, 4, 2, at::kFloat), {0.25, 0.0, 0}, 4, 1e-5);
  expect_whole(heads_of(2, 160, 4, 2, at::kBFloat16), {0.25, 0.0, 40}, 4, std::ldexp(1.0, -8));
}

}  // namespace
}  // namespace lockstep::nn
