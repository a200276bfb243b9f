// Units cut over tensor ranks against the same units on one rank.
#include "lockstep/nn/tensor_group.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/nn/sharded.h"
#include "tests/nn/units.h"

namespace lockstep::nn {
namespace {

using Tensors = std::vector<at::Tensor>;

std::size_t at_rank(const TensorGroup& group) { return static_cast<std::size_t>(group.index()); }

// What one microbatch of a block gives, put together from all ranks.
struct BlockResult {
  at::Tensor out, d_input, grads;
};

struct BlockOrder {
  model::Drop drop = {};
  bool recompute = false;
  bool at_once = true;
};

struct TensorBlockRig {
  TensorBlockRig(const Tiny& of, at::ScalarType type)
      : tiny(of),
        rope(of.config(), of.shape.seq, type, at::kCPU),
        params(random_params(of, kBlock, type)),
        input(random("input", {of.shape.tokens(), of.shape.hidden}, type)),
        d_out(random("d_out", {of.shape.tokens(), of.shape.hidden}, type)) {}

  Block block(const model::FlatLayout& flat, model::Drop drop, TensorGroup group) const {
    return {tiny.config(), tiny.unit(kBlock), flat, tiny.shape.batch, tiny.shape.seq, drop, rope,
            group};
  }

  BlockResult run(Ways ways, const BlockOrder& order = {}) const {
    const Sharded sharded(tiny, ways);
    const auto n = static_cast<std::size_t>(ways.tp);
    Tensors outs(n), d_inputs(n), grads(n);
    on_ranks(ways, [&](const TensorGroup& group, comm::Ledger&) {
      const std::size_t i = at_rank(group);
      const Block mine = block(sharded.flat(kBlock), order.drop, group);
      const at::Tensor own = sharded.cut(kBlock, params, group.index());
      const at::Tensor rows = sharded.path(input, group.index());
      Kept stash;
      outs[i] = mine.forward(own, rows, stash);
      EXPECT_TRUE(at::equal(mine.forward(own, rows), outs[i]));
      if (order.recompute) stash = mine.recompute(own, rows);
      grads[i] = at::full_like(own, kNan);
      at::Tensor d = sharded.path(d_out, group.index());
      if (order.at_once) {
        d_inputs[i] = mine.backward(own, std::move(stash), std::move(d), grads[i], true);
      } else {
        Kept work;
        d_inputs[i] = mine.input_grad(own, std::move(stash), std::move(d), work);
        mine.weight_grad(std::move(work), grads[i], /*is_first=*/true);
      }
      for (const model::FlatRange& gap : sharded.flat(kBlock).gaps(2))
        EXPECT_TRUE(grads[i].narrow(0, gap.begin, gap.size()).isnan().all().item<bool>());
    });
    return {sharded.join_path(outs), sharded.join_path(d_inputs), sharded.join(kBlock, grads)};
  }

  BlockResult alone() const {
    const Block whole = block(tiny.flat(kBlock), {}, {});
    BlockResult got;
    Kept stash;
    Kept work;
    got.out = whole.forward(params, input, stash);
    got.d_input = whole.input_grad(params, stash, d_out.clone(), work);
    got.grads = at::full_like(params, kNan);
    whole.weight_grad(work, got.grads, true);
    return got;
  }

  const Tiny& tiny;
  Rope rope;
  at::Tensor params, input, d_out;
};

bool same_bits(const Tiny& tiny, int unit, const at::Tensor& a, const at::Tensor& b) {
  return distance(tiny, unit, a, b) == 0.0;
}

void expect_same_bits(const Tiny& tiny, const BlockResult& a, const BlockResult& b) {
  EXPECT_TRUE(at::equal(a.out, b.out));
  EXPECT_TRUE(at::equal(a.d_input, b.d_input));
  EXPECT_TRUE(same_bits(tiny, kBlock, a.grads, b.grads));
}

TEST(TensorGroup, ABlockEqualsTheUncutOneInDoublePrecision) {
  for (const Shape& shape : divisible_shapes()) {
    const Tiny tiny(shape);
    const TensorBlockRig rig(tiny, at::kDouble);
    const BlockResult alone = rig.alone();
    for (const Ways& ways : all_ways()) {
      SCOPED_TRACE(ways.text() + " seq " + std::to_string(shape.seq));
      const BlockResult got = rig.run(ways);
      if (ways.tp == 1) expect_same_bits(tiny, got, alone);
      EXPECT_LE(distance(got.out, alone.out), 1e-12);
      EXPECT_LE(distance(got.d_input, alone.d_input), 1e-12);
      EXPECT_LE(distance(tiny, kBlock, got.grads, alone.grads), 1e-12);
    }
  }
}

// As close to the truth in f64 as three times autograd's f32, and the flash kernel's exponential,
// which is good to 20 units in the last place (block_test.cc); cutting sums adds no more than a
// few.
TEST(TensorGroup, ABlockIsAsAccurateAsTheUncutOneInSinglePrecision) {
  for (const Shape& shape : divisible_shapes()) {
    const Tiny tiny(shape);
    const TensorBlockRig rig(tiny, at::kFloat);
    const Truth truth = block_truth(tiny, rig.params.to(at::kDouble), rig.input.to(at::kDouble),
                                    rig.d_out.to(at::kDouble));
    const Truth single = block_truth(tiny, rig.params, rig.input, rig.d_out);
    for (const Ways& ways : all_ways()) {
      const BlockResult got = rig.run(ways);
      EXPECT_LE(distance(got.out, truth.out), 3 * distance(single.out, truth.out) + 20 * kEps32);
      EXPECT_LE(distance(got.d_input, truth.d_input),
                3 * distance(single.d_input, truth.d_input) + 20 * kEps32);
      EXPECT_LE(distance(tiny, kBlock, got.grads, truth.d_params),
                3 * distance(tiny, kBlock, single.d_params, truth.d_params) + 20 * kEps32);
    }
  }
}

void expect_orders_change_no_bit(const TensorBlockRig& rig, const Ways& ways) {
  const BlockResult kept = rig.run(ways);
  for (const bool at_once : {true, false})
    for (const bool recompute : {false, true})
      for (int mask = 0; mask < 8; ++mask) {
        const model::Drop drop{(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0};
        SCOPED_TRACE(ways.text() + " mask " + std::to_string(mask));
        expect_same_bits(rig.tiny, rig.run(ways, {drop, recompute, at_once}), kept);
      }
}

TEST(TensorGroup, DroppedRowsRecomputeAndPuttingOffWeightsChangeNoBit) {
  const Tiny tiny(divisible_shapes()[0]);
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const Ways& ways : {Ways{2, false}, {2, true}, {4, true}})
      expect_orders_change_no_bit(TensorBlockRig(tiny, type), ways);
  for (const Kin kin : {Kin::kGpt2, Kin::kQwen2, Kin::kQwen3}) {
    const Tiny other(divisible_shapes()[0].as(kin));
    for (const Ways& ways : {Ways{2, false}, {2, true}})
      expect_orders_change_no_bit(TensorBlockRig(other, at::kDouble), ways);
  }
}

// Rows of other ranks add zeros, so nothing rounds; but the gradient of a learned position is a sum
// over sequences, which sequence parallelism regroups.
TEST(TensorGroup, TheEmbeddingKeepsItsBits) {
  for (const Shape& shape : divisible_shapes()) {
    const Tiny tiny(shape);
    const at::Tensor params = random_params(tiny, kEmbed, at::kFloat);
    const at::Tensor tokens = random_labels(shape);
    const at::Tensor d_out = random("d_out", {shape.tokens(), shape.hidden}, at::kFloat);
    const Embedding whole(tiny.config(), tiny.unit(kEmbed), tiny.flat(kEmbed));
    const at::Tensor grads = at::full_like(params, kNan);
    for (const bool is_first : {true, false})
      whole.weight_grad(tokens, d_out.clone(), grads, is_first);
    for (const Ways& ways : all_ways()) {
      SCOPED_TRACE(ways.text());
      const Sharded sharded(tiny, ways);
      Tensors outs(static_cast<std::size_t>(ways.tp)), parts(outs.size());
      on_ranks(ways, [&](const TensorGroup& group, comm::Ledger&) {
        const std::size_t i = at_rank(group);
        const Embedding mine(tiny.config(), tiny.unit(kEmbed), sharded.flat(kEmbed), group);
        const at::Tensor own = sharded.cut(kEmbed, params, group.index());
        outs[i] = mine.forward(own, tokens);
        parts[i] = at::full_like(own, kNan);
        for (const bool is_first : {true, false})
          mine.weight_grad(tokens, sharded.path(d_out, group.index()), parts[i], is_first);
      });
      EXPECT_TRUE(at::equal(sharded.join_path(outs), whole.forward(params, tokens)));
      const at::Tensor joined = sharded.join(kEmbed, parts);
      if (!ways.sp || shape.kin != Kin::kGpt2) {
        EXPECT_TRUE(same_bits(tiny, kEmbed, joined, grads));
      }
      EXPECT_TRUE(at::equal(nn::parts(tiny, kEmbed, joined)[0].values,
                            nn::parts(tiny, kEmbed, grads)[0].values));
      EXPECT_LE(distance(tiny, kEmbed, joined, grads), 2 * kEps32);
    }
  }
}

struct HeadResult {
  double loss = 0.0;  // of all ranks together
  at::Tensor d_input, grads;
};

// As an all_reduce adds the sums of ranks.
double merged(const std::vector<ExactSum>& sums) {
  ExactSum::Words words = {};
  for (const ExactSum& sum : sums)
    std::ranges::transform(words, sum.to_words(), words.begin(), std::plus());
  return ExactSum::from_words(words).result();
}

struct TensorHeadRig {
  TensorHeadRig(const Tiny& of, at::ScalarType type)
      : tiny(of),
        params(random_params(of, kHead, type)),
        input(random("input", {of.shape.tokens(), of.shape.hidden}, type)),
        labels(random_labels(of.shape, 3)) {}

  HeadResult run(Ways ways, std::int64_t chunk) const {
    const Sharded sharded(tiny, ways);
    std::vector<ExactSum> losses(static_cast<std::size_t>(ways.tp)), again(losses.size());
    Tensors d_inputs(losses.size()), grads(losses.size());
    on_ranks(ways, [&](const TensorGroup& group, comm::Ledger&) {
      const std::size_t i = at_rank(group);
      const Head mine(tiny.config(), tiny.unit(kHead), sharded.flat(kHead), chunk, group);
      const at::Tensor own = sharded.cut(kHead, params, group.index());
      const at::Tensor rows = sharded.path(input, group.index());
      grads[i] = at::full_like(own, kNan);
      d_inputs[i] = mine.loss_and_grad(own, rows, labels, kLossSeed, grads[i], true, losses[i]);
      mine.loss(own, rows, labels, again[i]);
    });
    const double sum = merged(losses);
    EXPECT_EQ(sum, merged(again));
    return {sum, sharded.join_path(d_inputs), sharded.join(kHead, grads)};
  }

  HeadResult alone(std::int64_t chunk) const {
    ExactSum loss;
    HeadResult got;
    got.grads = at::full_like(params, kNan);
    got.d_input = Head(tiny.config(), tiny.unit(kHead), tiny.flat(kHead), chunk)
                      .loss_and_grad(params, input, labels, kLossSeed, got.grads, true, loss);
    got.loss = loss.result();
    return got;
  }

  const Tiny& tiny;
  at::Tensor params, input, labels;
};

TEST(TensorGroup, AHeadEqualsTheUncutOneInDoublePrecision) {
  for (const Shape& shape : divisible_shapes()) {
    const Tiny tiny(shape);
    const TensorHeadRig rig(tiny, at::kDouble);
    for (const std::int64_t chunk : {std::int64_t{7}, shape.tokens()}) {
      const HeadResult alone = rig.alone(chunk);
      for (const Ways& ways : all_ways()) {
        SCOPED_TRACE(ways.text() + " seq " + std::to_string(shape.seq));
        const HeadResult got = rig.run(ways, chunk);
        if (ways.tp == 1) {
          EXPECT_EQ(got.loss, alone.loss);
          EXPECT_TRUE(at::equal(got.d_input, alone.d_input));
          EXPECT_TRUE(same_bits(tiny, kHead, got.grads, alone.grads));
        }
        EXPECT_NEAR(got.loss, alone.loss, 1e-13 * alone.loss);
        EXPECT_LE(distance(got.d_input, alone.d_input), 1e-12);
        EXPECT_LE(distance(tiny, kHead, got.grads, alone.grads), 1e-12);
      }
    }
  }
}

TEST(TensorGroup, AHeadIsAsAccurateAsTheUncutOneInSinglePrecision) {
  for (const Shape& shape : divisible_shapes()) {
    const Tiny tiny(shape);
    const TensorHeadRig rig(tiny, at::kFloat);
    const Truth truth = head_truth(tiny, rig.params.to(at::kDouble), rig.input.to(at::kDouble),
                                   rig.labels, kLossSeed);
    const Truth single = head_truth(tiny, rig.params, rig.input, rig.labels, kLossSeed);
    for (const Ways& ways : all_ways()) {
      const HeadResult got = rig.run(ways, 7);
      EXPECT_NEAR(got.loss, truth.out.item<double>(), 4 * kEps32 * got.loss);
      EXPECT_LE(distance(got.d_input, truth.d_input),
                3 * distance(single.d_input, truth.d_input) + 8 * kEps32);
      EXPECT_LE(distance(tiny, kHead, got.grads, truth.d_params),
                3 * distance(tiny, kHead, single.d_params, truth.d_params) + 8 * kEps32);
    }
  }
}

// Logits far apart between ranks: the greatest must be that of all, or exponentials overflow.
TEST(TensorGroup, GreatLogitsDoNotOverflow) {
  const Tiny tiny(divisible_shapes()[0]);
  TensorHeadRig rig(tiny, at::kFloat);
  const auto place = tiny.flat(kHead).of(1);
  ASSERT_EQ(tiny.unit(kHead).params[1].name, "head.weight");
  rig.params.narrow(0, place.offset, place.numel).mul_(400.0);
  const HeadResult alone = rig.alone(7);
  for (const Ways& ways : all_ways()) {
    const HeadResult got = rig.run(ways, 7);
    EXPECT_NEAR(got.loss, alone.loss, 8 * kEps32 * alone.loss) << ways.text();
    EXPECT_LE(distance(got.d_input, alone.d_input), 1e-4) << ways.text();
  }
}

TEST(TensorGroup, RefusesWhatItCanNotCut) {
  const Tiny tiny({.seq = 9, .heads = 6});  // 18 tokens
  const Rope rope(tiny.config(), 9, at::kDouble, at::kCPU);
  on_ranks({4, true}, [&](const TensorGroup& group, comm::Ledger&) {
    EXPECT_ANY_THROW(group.local_rows(18));
    EXPECT_EQ(group.local_rows(16), 4);
    const at::Tensor any = random("any", {1}, at::kDouble);
    EXPECT_ANY_THROW(
        Block(tiny.config(), tiny.unit(kBlock), tiny.flat(kBlock), 2, 9, {}, rope, group)
            .runner(any));
    EXPECT_ANY_THROW(Head(tiny.config(), tiny.unit(kHead), tiny.flat(kHead), 1, group).runner(any));
    EXPECT_ANY_THROW(
        Embedding(tiny.config(), tiny.unit(kEmbed), tiny.flat(kEmbed), group).runner(any));
  });
}

}  // namespace
}  // namespace lockstep::nn
