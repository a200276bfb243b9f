#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "tests/nn/oracle.h"
#include "tests/nn/units.h"

namespace lockstep::nn {
namespace {

struct HeadGot {
  double loss;
  at::Tensor d_input, grads;
};

struct HeadRig {
  HeadRig(const Tiny& of, at::ScalarType type, std::int64_t ignore = 3)
      : tiny(of),
        params(random_params(of, kHead, type)),
        input(random("input", {of.shape.tokens(), of.shape.hidden}, type)),
        labels(random_labels(of.shape, ignore)) {}

  Head head(std::int64_t chunk) const {
    return {tiny.config(), tiny.unit(kHead), tiny.flat(kHead), chunk};
  }
  HeadGot run(std::int64_t chunk) const {
    HeadGot got;
    ExactSum loss;
    got.grads = at::full_like(params, kNan);
    got.d_input =
        head(chunk).loss_and_grad(params, input, labels, kLossSeed, got.grads, true, loss);
    got.loss = loss.result();
    return got;
  }

  const Tiny& tiny;
  at::Tensor params, input, labels;
};

TEST(Head, EqualsAutogradInDoublePrecision) {
  for (const Shape& shape : shapes()) {
    const Tiny tiny(shape);
    const HeadRig rig(tiny, at::kDouble);
    const Truth truth = head_truth(tiny, rig.params, rig.input, rig.labels, kLossSeed);
    for (const std::int64_t chunk : {std::int64_t{1}, std::int64_t{7}, shape.tokens()}) {
      const HeadGot got = rig.run(chunk);
      EXPECT_NEAR(got.loss, truth.out.item<double>(), 1e-13 * got.loss);
      EXPECT_LE(distance(got.d_input, truth.d_input), 1e-12) << chunk;
      EXPECT_LE(distance(tiny, kHead, got.grads, truth.d_params), 1e-12) << chunk;
    }
  }
}

TEST(Head, IsAsAccurateAsAutogradInSinglePrecision) {
  for (const Shape& shape : shapes()) {
    const Tiny tiny(shape);
    const HeadRig rig(tiny, at::kFloat);
    const Truth truth = head_truth(tiny, rig.params.to(at::kDouble), rig.input.to(at::kDouble),
                                   rig.labels, kLossSeed);
    const Truth single = head_truth(tiny, rig.params, rig.input, rig.labels, kLossSeed);
    const HeadGot got = rig.run(7);
    EXPECT_NEAR(got.loss, truth.out.item<double>(), 4 * kEps32 * got.loss);
    EXPECT_LE(distance(got.d_input, truth.d_input),
              3 * distance(single.d_input, truth.d_input) + 8 * kEps32);
    EXPECT_LE(distance(tiny, kHead, got.grads, truth.d_params),
              3 * distance(tiny, kHead, single.d_params, truth.d_params) + 8 * kEps32);
  }
}

// Token losses are rows and their sum is exact, so the loss keeps its bits; the weight's gradient
// is a sum over tokens that chunks regroup.
TEST(Head, ChunksChangeTheOrderOfSumsOnly) {
  const Tiny tiny({.batch = 3, .seq = 41, .hidden = 96, .vocab = 301});
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const HeadRig rig(tiny, type);
    const double bound = type == at::kFloat ? 1e-5 : 1e-13;
    const HeadGot whole = rig.run(tiny.shape.tokens());
    for (const std::int64_t chunk : {1, 2, 7, 64, 1000}) {
      const HeadGot got = rig.run(chunk);
      EXPECT_EQ(std::bit_cast<std::uint64_t>(got.loss), std::bit_cast<std::uint64_t>(whole.loss))
          << chunk;
      EXPECT_TRUE(at::equal(got.d_input, whole.d_input)) << chunk;
      EXPECT_LE(distance(tiny, kHead, got.grads, whole.grads), bound) << chunk;
      ExactSum alone;
      rig.head(chunk).loss(rig.params, rig.input, rig.labels, alone);
      EXPECT_EQ(alone.result(), whole.loss);
    }
  }
}

TEST(Head, IgnoredLabelsTakeNoPart) {
  const Tiny tiny({});
  const HeadRig none(tiny, at::kDouble, /*ignore=*/1);
  const HeadGot got = none.run(5);
  EXPECT_EQ(got.loss, 0.0);
  EXPECT_TRUE(at::equal(got.d_input, at::zeros_like(got.d_input)));
  for (const Named& part : parts(tiny, kHead, got.grads))
    EXPECT_TRUE(at::equal(part.values, at::zeros_like(part.values))) << part.name;
}

TEST(Head, GradientsAddUpAndLeaveGapsAlone) {
  const Tiny tiny({.hidden = 48});
  const HeadRig rig(tiny, at::kDouble);
  const HeadGot once = rig.run(7);
  const at::Tensor twice = once.grads.clone();
  ExactSum loss;
  rig.head(7).loss_and_grad(rig.params, rig.input, rig.labels, kLossSeed, twice, false, loss);
  EXPECT_LE(distance(tiny, kHead, twice, once.grads.mul(2)), 1e-14);
  for (const model::FlatRange& gap : tiny.flat(kHead).gaps(2))
    EXPECT_TRUE(twice.narrow(0, gap.begin, gap.size()).isnan().all().item<bool>());
}

// The head lets LibTorch write logarithms of probabilities over the logits they come from.
TEST(Head, LogSoftmaxMayOverwriteItsInput) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const std::int64_t width : {1, 5, 50, 1000, 70'000}) {
      at::Tensor x = random("logits", {9, width}, type, 20.0);
      const at::Tensor apart = at::log_softmax(x, 1);
      at::_log_softmax_out(x, x, 1, false);
      EXPECT_TRUE(at::equal(x, apart)) << width;
    }
}

TEST(Embedding, PicksRowsAndAddsTheirGradientsTokenByToken) {
  const Tiny tiny({.hidden = 48, .vocab = 7});  // tokens repeat
  const std::int64_t hidden = 48;
  const Embedding embedding(tiny.config(), tiny.unit(kEmbed), tiny.flat(kEmbed));
  const at::Tensor params = random_params(tiny, kEmbed, at::kDouble);
  const at::Tensor tokens = random_labels(tiny.shape);
  const at::Tensor out = embedding.forward(params, tokens);
  const at::Tensor d_out = random("d_out", {tiny.shape.tokens(), hidden}, at::kDouble);
  const at::Tensor grads = at::full_like(params, kNan);
  embedding.weight_grad(tokens, d_out.clone(), grads, true);
  embedding.weight_grad(tokens, d_out.clone(), grads, false);

  std::vector<double> sums(static_cast<std::size_t>(7 * hidden), 0.0);
  for (int pass = 0; pass < 2; ++pass)
    for (std::int64_t t = 0; t < tiny.shape.tokens(); ++t)
      for (std::int64_t i = 0; i < hidden; ++i) {
        const std::int64_t place = tokens.const_data_ptr<std::int64_t>()[t] * hidden + i;
        sums[static_cast<std::size_t>(place)] += d_out.const_data_ptr<double>()[t * hidden + i];
        EXPECT_EQ(out.const_data_ptr<double>()[t * hidden + i],
                  params.const_data_ptr<double>()[place]);
      }
  for (std::size_t i = 0; i < sums.size(); ++i)
    EXPECT_EQ(grads.const_data_ptr<double>()[i], sums[i]);
  EXPECT_TRUE(grads.narrow(0, 7 * hidden, grads.numel() - 7 * hidden).isnan().all().item<bool>());
}

TEST(Embedding, EqualsAutogradInDoublePrecision) {
  for (const Shape& shape : shapes()) {
    const Tiny tiny(shape);
    const Embedding embedding(tiny.config(), tiny.unit(kEmbed), tiny.flat(kEmbed));
    const at::Tensor params = random_params(tiny, kEmbed, at::kDouble);
    const at::Tensor tokens = random_labels(shape);
    const at::Tensor d_out = random("d_out", {shape.tokens(), shape.hidden}, at::kDouble);
    const Truth truth = embed_truth(tiny, params, tokens, d_out);
    const at::Tensor grads = at::full_like(params, kNan);
    EXPECT_TRUE(at::equal(embedding.forward(params, tokens), truth.out));
    embedding.weight_grad(tokens, d_out.clone(), grads, true);
    EXPECT_LE(distance(tiny, kEmbed, grads, truth.d_params), 1e-15);
    embedding.weight_grad(tokens, d_out.clone(), grads, false);
    EXPECT_LE(distance(tiny, kEmbed, grads, truth.d_params.mul(2)), 1e-15);
  }
}

}  // namespace
}  // namespace lockstep::nn
