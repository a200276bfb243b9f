#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/nn/oracle.h"
#include "tests/nn/units.h"

namespace lockstep::nn {
namespace {

struct Passes {
  at::Tensor out, d_input, grads;
  Kept stash;
};

// A block with everything it needs, at one place in memory.
struct BlockRig {
  BlockRig(const Tiny& of, at::ScalarType type, model::Drop drop = {})
      : tiny(of),
        rope(of.config(), of.shape.seq, type, at::kCPU),
        block(of.config(), of.unit(kBlock), of.flat(kBlock), of.shape.batch, of.shape.seq, drop,
              rope),
        params(random_params(of, kBlock, type)),
        input(random("input", {of.shape.tokens(), of.shape.hidden}, type)),
        d_out(random("d_out", {of.shape.tokens(), of.shape.hidden}, type)) {}

  Passes run(bool recompute = false) const {
    Passes got;
    got.out = block.forward(params, input, got.stash);
    if (recompute) got.stash = block.recompute(params, input);
    Kept work;
    got.d_input = block.input_grad(params, got.stash, d_out.clone(), work);
    got.grads = at::full_like(params, kNan);
    block.weight_grad(work, got.grads, /*is_first=*/true);
    return got;
  }

  const Tiny& tiny;
  Rope rope;
  Block block;
  at::Tensor params, input, d_out;
};

struct Distances {
  double out, d_input, grads;
};

Distances distances(const Tiny& tiny, const Passes& got, const Truth& truth) {
  return {distance(got.out, truth.out), distance(got.d_input, truth.d_input),
          distance(tiny, kBlock, got.grads, truth.d_params)};
}

TEST(Block, EqualsAutogradInDoublePrecision) {
  for (const Shape& shape : shapes())
    for (const bool scaled : {false, true}) {
      const Tiny tiny(shape, scaled);
      const BlockRig rig(tiny, at::kDouble);
      const Truth truth = block_truth(tiny, rig.params, rig.input, rig.d_out);
      const Distances off = distances(tiny, rig.run(), truth);
      EXPECT_LE(off.out, 1e-12) << shape.seq;
      EXPECT_LE(off.d_input, 1e-12) << shape.seq;
      EXPECT_LE(off.grads, 1e-12) << shape.seq;
    }
}

// As close to the truth in f64 as three times autograd's f32, and the flash kernel's exponential,
// which is good to 20 units in the last place.
TEST(Block, IsAsAccurateAsAutogradInSinglePrecision) {
  for (const Shape& shape : shapes()) {
    const Tiny tiny(shape);
    const BlockRig rig(tiny, at::kFloat);
    const Truth truth = block_truth(tiny, rig.params.to(at::kDouble), rig.input.to(at::kDouble),
                                    rig.d_out.to(at::kDouble));
    const Truth single = block_truth(tiny, rig.params, rig.input, rig.d_out);
    const Distances off = distances(tiny, rig.run(), truth);
    EXPECT_LE(off.out, 3 * distance(single.out, truth.out) + 20 * kEps32);
    EXPECT_LE(off.d_input, 3 * distance(single.d_input, truth.d_input) + 20 * kEps32);
    EXPECT_LE(off.grads, 3 * distance(tiny, kBlock, single.d_params, truth.d_params) + 20 * kEps32);
  }
}

void expect_same(const Kept& a, const Kept& b, const std::vector<std::string>& names) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first) << names[i];
    EXPECT_TRUE(at::equal(a[i].second, b[i].second)) << names[i];
  }
}

void expect_drops_change_no_bit(const Tiny& tiny, at::ScalarType type) {
  const Passes kept = BlockRig(tiny, type).run();
  // What norms make behind attention and MLP no product reads.
  const auto keeps = [&](const model::DropRow& row) {
    return tiny.config().norm_place != model::NormPlace::kAfter ||
           !std::string_view(row.tensor).ends_with("_normed");
  };
  for (int mask = 0; mask < 8; ++mask) {
    const model::Drop drop{(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0};
    const BlockRig rig(tiny, type, drop);
    for (const bool recompute : {false, true}) {
      const Passes got = rig.run(recompute);
      EXPECT_TRUE(at::equal(got.out, kept.out)) << mask;
      EXPECT_TRUE(at::equal(got.d_input, kept.d_input)) << mask;
      EXPECT_EQ(distance(tiny, kBlock, got.grads, kept.grads), 0.0) << mask;
      const std::vector<std::string> names = rig.block.names(got.stash);
      for (const model::DropRow& row : model::kDropRows) {
        // An expert's gate and up are products of their own.
        const bool twice = tiny.config().moe.experts > 0 && row.tensor == std::string("gate_up");
        EXPECT_EQ(std::ranges::count(names, row.tensor),
                  keeps(row) && !(drop.*row.is_dropped) ? (twice ? 2 : 1) : 0);
      }
    }
    Kept stash;
    rig.block.forward(rig.params, rig.input, stash);
    expect_same(rig.block.recompute(rig.params, rig.input), stash, rig.block.names(stash));
    EXPECT_TRUE(at::equal(rig.block.forward(rig.params, rig.input), kept.out));
  }
}

TEST(Block, DroppedRowsAndRecomputeChangeNoBit) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const Kin kin : kAllKin) expect_drops_change_no_bit(Tiny(Shape{.seq = 40}.as(kin)), type);
}

TEST(Block, WeightGradientsAddUpAndLeaveGapsAlone) {
  const Tiny tiny({.hidden = 48});  // a gain of 48 elements is followed by a gap
  const BlockRig rig(tiny, at::kDouble);
  const at::Tensor once = rig.run().grads;
  Kept stash;
  Kept work;
  rig.block.forward(rig.params, rig.input, stash);
  rig.block.input_grad(rig.params, stash, rig.d_out.clone(), work);
  const at::Tensor twice = once.clone();
  rig.block.weight_grad(work, twice, /*is_first=*/false);
  EXPECT_LE(distance(tiny, kBlock, twice, once.mul(2)), 1e-15);
  const std::vector<model::FlatRange> gaps = tiny.flat(kBlock).gaps(2);
  ASSERT_GE(gaps.size(), 2U);
  for (const model::FlatRange& gap : gaps)
    EXPECT_TRUE(twice.narrow(0, gap.begin, gap.size()).isnan().all().item<bool>());
}

// Under strict kernels a token's bits do not depend on the other sequences of its microbatch.
TEST(Block, SplittingSequencesOverCallsChangesNoBit) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const auto& [seq, kin] : {std::pair{8, Kin::kLlama},
                                   {50, Kin::kLlama},
                                   {200, Kin::kLlama},
                                   {50, Kin::kGpt2},
                                   {50, Kin::kQwen3}}) {
      const Tiny tiny(Shape{.batch = 4, .seq = seq, .hidden = 96, .ffn = 134}.as(kin));
      const BlockRig whole(tiny, type);
      const Passes all = whole.run();
      for (const std::int64_t pieces : {2, 4}) {
        Shape part = tiny.shape;
        part.batch /= pieces;
        const Block block(tiny.config(), tiny.unit(kBlock), tiny.flat(kBlock), part.batch, seq, {},
                          whole.rope);
        std::vector<at::Tensor> outs, d_inputs;
        for (std::int64_t i = 0; i < pieces; ++i) {
          const auto rows = [&](const at::Tensor& x) {
            return x.narrow(0, i * part.tokens(), part.tokens());
          };
          Kept stash;
          Kept work;
          outs.push_back(block.forward(whole.params, rows(whole.input), stash));
          d_inputs.push_back(
              block.input_grad(whole.params, stash, rows(whole.d_out).clone(), work));
        }
        EXPECT_TRUE(at::equal(at::cat(outs), all.out)) << seq << " " << pieces;
        EXPECT_TRUE(at::equal(at::cat(d_inputs), all.d_input)) << seq << " " << pieces;
      }
    }
}

TEST(Rope, TurningBackUndoesIt) {
  const Tiny tiny({.seq = 7});
  const Rope rope(tiny.config(), 7, at::kDouble, at::kCPU);
  const at::Tensor x = random("x", {14, 5 * tiny.shape.head_dim}, at::kDouble);
  const at::Tensor turned = x.clone();
  rope.rotate(turned, 3);
  const std::int64_t width = 3 * tiny.shape.head_dim;
  EXPECT_TRUE(
      at::equal(turned.narrow(1, width, x.size(1) - width), x.narrow(1, width, x.size(1) - width)));
  EXPECT_GT(distance(turned.narrow(1, 0, width), x.narrow(1, 0, width)), 0.1);
  rope.rotate_back(turned, 3);
  EXPECT_LE(distance(turned, x), 1e-15);
}

TEST(Block, RefusesWhatItDoesNotCompute) {
  const Tiny tiny({});
  const Rope rope(tiny.config(), 12, at::kDouble, at::kCPU);
  const auto build = [&](const model::ModelConfig& config) {
    Block(config, tiny.unit(kBlock), tiny.flat(kBlock), 2, 12, {}, rope)
        .runner(random_params(tiny, kBlock, at::kDouble));
  };
  model::ModelConfig biased = tiny.config();
  biased.qkv_bias = true;
  EXPECT_ANY_THROW(build(biased));
  model::ModelConfig plain = tiny.config();
  plain.norm = model::NormKind::kPlain;
  EXPECT_ANY_THROW(build(plain));
}

}  // namespace
}  // namespace lockstep::nn
