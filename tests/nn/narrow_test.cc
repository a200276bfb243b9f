// Units in bf16: what is added up, in which type, and how many bytes that takes.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/nn/norm.h"
#include "lockstep/parts/unit_passes.h"
#include "lockstep/tensor/memory.h"
#include "tests/nn/oracle.h"
#include "tests/nn/units.h"
#include "tests/support/net_bytes.h"

namespace lockstep::nn {
namespace {

using parts::UnitPass;
using tensor::ChargeTo;
using tensor::MemoryAccount;

constexpr auto kNarrow = at::kBFloat16;

at::Tensor wide_grads(const at::Tensor& params) {
  return at::full({params.numel()}, kNan, at::kFloat);
}

// About as far from the truth in f64 as LibTorch's autograd over bf16, which rounds after every op:
// of the greatest of a few thousand errors two draws differ by less than half.
TEST(Narrow, ABlockIsAsAccurateAsAutograd) {
  for (const Shape& shape : shapes()) {
    const Tiny tiny(shape);
    const Rope rope(tiny.config(), shape.seq, kNarrow, at::kCPU);
    const Block block(tiny.config(), tiny.unit(kBlock), tiny.flat(kBlock), shape.batch, shape.seq,
                      {}, rope);
    const at::Tensor params = random_params(tiny, kBlock, kNarrow);
    const at::Tensor input = random("input", {shape.tokens(), shape.hidden}, kNarrow);
    const at::Tensor d_out = random("d_out", {shape.tokens(), shape.hidden}, kNarrow);
    Kept stash;
    const at::Tensor out = block.forward(params, input, stash);
    Kept work;
    const at::Tensor d_input = block.input_grad(params, stash, d_out.clone(), work);
    const at::Tensor grads = wide_grads(params);
    block.weight_grad(work, grads, /*is_first=*/true);

    const Truth truth =
        block_truth(tiny, params.to(at::kDouble), input.to(at::kDouble), d_out.to(at::kDouble));
    const Truth rounded = block_truth(tiny, params, input, d_out);
    EXPECT_LE(distance(out, truth.out), 1.5 * distance(rounded.out, truth.out));
    EXPECT_LE(distance(d_input, truth.d_input), 1.5 * distance(rounded.d_input, truth.d_input));
    EXPECT_LE(distance(tiny, kBlock, grads, truth.d_params),
              1.5 * distance(tiny, kBlock, rounded.d_params, truth.d_params));
  }
}

TEST(Narrow, TheHeadIsAsAccurateAsAutogradAndItsLossIsWide) {
  for (const std::int64_t chunk : {5, 1000}) {
    const Shape shape{.hidden = 96, .vocab = 301};
    const Tiny tiny(shape);
    const Head head(tiny.config(), tiny.unit(kHead), tiny.flat(kHead), chunk);
    const at::Tensor params = random_params(tiny, kHead, kNarrow);
    const at::Tensor input = random("input", {shape.tokens(), shape.hidden}, kNarrow);
    const at::Tensor labels = random_labels(shape, 3);
    const at::Tensor grads = wide_grads(params);
    ExactSum loss;
    const at::Tensor d = head.loss_and_grad(params, input.clone(), labels, 0.01, grads, true, loss);
    const Truth truth =
        head_truth(tiny, params.to(at::kDouble), input.to(at::kDouble), labels, 0.01);
    const Truth rounded = head_truth(tiny, params, input, labels, 0.01);
    EXPECT_LE(distance(d, truth.d_input), distance(rounded.d_input, truth.d_input));
    EXPECT_LE(distance(tiny, kHead, grads, truth.d_params),
              distance(tiny, kHead, rounded.d_params, truth.d_params));
    // Of what the loss is computed from, only the norm's output is rounded. A token's loss moves by
    // at most twice what its greatest logit does, and that by |x| |w| u for h independent
    // roundings.
    const double exact = truth.out.item<double>();
    EXPECT_NEAR(loss.result(), exact, exact * std::ldexp(1.0, -9));
  }
}

TEST(Narrow, TheEmbeddingAddsWideAndInOrder) {
  // More rows than are copied at once, and learned positions.
  const Shape shape =
      Shape{.batch = 3, .seq = 500, .hidden = 256, .heads = 16, .vocab = 7}.as(Kin::kGpt2);
  const Tiny tiny(shape);
  const Embedding embedding(tiny.config(), tiny.unit(kEmbed), tiny.flat(kEmbed));
  const at::Tensor tokens = random_labels(shape);
  const at::Tensor d = random("d", {shape.tokens(), shape.hidden}, kNarrow);
  const at::Tensor grads = wide_grads(random_params(tiny, kEmbed, kNarrow));
  embedding.weight_grad(tokens, d.clone(), grads, true);
  const at::Tensor whole = wide_grads(grads);
  embedding.weight_grad(tokens, d.to(at::kFloat), whole, true);
  EXPECT_EQ(distance(tiny, kEmbed, grads, whole), 0.0);
}

// What a norm gives: y, the gradient of x, statistics of rows, gradients of parameters.
struct Normed {
  at::Tensor y, d_x, rstd, mean, d_gain, d_bias;
};
Normed normed(const at::Tensor& x, const at::Tensor& d, const at::Tensor& gain,
              const at::Tensor& bias) {
  Normed got;
  if (!bias.defined()) {
    got.rstd = rms_rstd(x, 1e-5);
    got.y = rms_scale(x, got.rstd, gain);
    got.d_x = d.clone();
    got.d_gain = rms_norm_grad(got.d_x, x, got.rstd, gain);
    return got;
  }
  LayerNormed made = layer_norm(x, gain, bias, 1e-5);
  const LayerNormGrads grads = layer_norm_grad(d.clone(), x, made.rstd, made.mean, gain, bias);
  return {made.y, grads.x, made.rstd, made.mean, grads.gain, grads.bias};
}

// Rows are copied a few at a time; which, must not show, but in the order of sums over rows.
void expect_rounded_once(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias = {}) {
  const auto wide_of = [](const at::Tensor& of) { return of.defined() ? of.to(at::kFloat) : of; };
  const at::Tensor d = random("d", x.sizes().vec(), kNarrow);
  const Normed narrow = normed(x, d, gain, bias);
  const Normed wide = normed(wide_of(x), wide_of(d), wide_of(gain), wide_of(bias));
  EXPECT_TRUE(at::equal(narrow.rstd, wide.rstd));
  EXPECT_TRUE(at::equal(narrow.y, wide.y.to(kNarrow)));
  EXPECT_TRUE(at::equal(narrow.d_x, wide.d_x.to(kNarrow)));
  EXPECT_EQ(narrow.d_gain.scalar_type(), at::kFloat);
  const auto rows = static_cast<double>(wide.rstd.numel());
  EXPECT_LE(distance(narrow.d_gain, wide.d_gain), std::ldexp(rows, -24));
  if (!bias.defined()) return;
  EXPECT_TRUE(at::equal(narrow.mean, wide.mean));
  EXPECT_EQ(narrow.d_bias.scalar_type(), at::kFloat);
  EXPECT_LE(distance(narrow.d_bias, wide.d_bias), std::ldexp(rows, -24));
}

TEST(Narrow, NormsAreThoseOfWideRowsRoundedOnce) {
  const std::int64_t h = 640, tokens = 2 * model::wide_rows(h) + 4;
  const at::Tensor x = random("x", {tokens, h}, kNarrow);
  const at::Tensor gain = random("gain", {h}, kNarrow).add_(1);
  expect_rounded_once(x, gain);
  expect_rounded_once(x, gain, random("bias", {h}, kNarrow));
}

TEST(Narrow, NormsOfHeadsAreThoseOfWideRowsRoundedOnce) {
  // Queries are a slice of what one product made.
  const at::Tensor q = random("qkv", {2, 700, 8, 16}, kNarrow).narrow(2, 0, 5);
  expect_rounded_once(q, random("gain", {16}, kNarrow).add_(1));
}

// oneDNN's products of bf16 take memory of their own for a moment, which no formula gives: what the
// product alone takes.
class Scratch {
 public:
  void add(std::int64_t m, std::int64_t k, std::int64_t n, bool b_by_columns) {
    const at::Tensor a = random("a", {m, k}, kNarrow);
    const at::Tensor b =
        b_by_columns ? random("b", {n, k}, kNarrow).t() : random("b", {k, n}, kNarrow);
    at::Tensor out = random("out", {m, n}, kNarrow);
    MemoryAccount account;
    const ChargeTo charge(account);
    at::mm_out(out, a, b);
    most_ = std::max(most_, account.peak());
  }
  std::int64_t most() const { return most_; }

 private:
  std::int64_t most_ = 0;
};

class NarrowMemory : public testing::Test {
 protected:
  template <class Body>
  void pass(UnitPass pass, std::int64_t scratch, const char* name, Body body) {
    const parts::UnitPasses passes(tiny_->config(), tiny_->unit(unit_), sizes_);
    const parts::MemoryEvents& events = passes.events(pass);
    const std::int64_t before = account_.live();
    account_.reset_peak();
    body();
    EXPECT_EQ(account_.live() - before, net(events)) << name;
    const std::int64_t peak = account_.peak() - before;
    EXPECT_GE(peak, extra(events)) << name;
    EXPECT_LE(peak, extra(events) + scratch) << name;
  }
  void build(const Shape& shape, int unit) {
    tiny_ = std::make_unique<Tiny>(shape);
    unit_ = unit;
    sizes_ = {.batch = shape.batch, .seq = shape.seq, .dtype = DType::kBF16};
    sizes_.packs_keys = tensor::packs_keys();
  }

  std::unique_ptr<Tiny> tiny_;
  int unit_ = kBlock;
  model::UnitSizes sizes_;
  MemoryAccount account_;
};

TEST_F(NarrowMemory, BlocksTakeTheTablesAndScratchOfProducts) {
  std::vector<Shape> all = shapes();
  all.push_back({.batch = 1, .seq = 800, .hidden = 32, .heads = 2, .kv_heads = 1, .ffn = 64});
  all.push_back({.batch = 2,
                 .seq = 256,
                 .hidden = 256,
                 .heads = 4,
                 .kv_heads = 4,
                 .head_dim = 64,
                 .ffn = 32});
  for (const Shape& shape : all) {
    build(shape, kBlock);
    SCOPED_TRACE(tiny_->config().name + ", " + std::to_string(shape.seq) + " tokens");
    const std::int64_t t = shape.tokens(), h = shape.hidden, q = shape.q();
    const std::int64_t qkv = q + 2 * shape.k(), f = shape.ffn;
    const std::int64_t g = shape.kin == Kin::kGpt2 ? f : 2 * f;
    Scratch forward, backward;
    for (const auto& [k, n] : {std::pair{h, qkv}, {q, h}, {h, g}, {f, h}}) {
      forward.add(t, k, n, true);
      backward.add(t, n, k, false);
    }
    const Rope rope(tiny_->config(), shape.seq, kNarrow, at::kCPU);
    const Block block(tiny_->config(), tiny_->unit(kBlock), tiny_->flat(kBlock), shape.batch,
                      shape.seq, {}, rope);
    const at::Tensor params = random_params(*tiny_, kBlock, kNarrow);
    const at::Tensor grads = wide_grads(params);
    const at::Tensor source = random("input", {t, h}, kNarrow);
    const ChargeTo charge(account_);
    at::Tensor input = source.clone(), out, d_input;
    Kept stash;
    Kept work;
    pass(UnitPass::kForward, forward.most(), "forward",
         [&] { out = block.forward(params, std::move(input), stash); });
    out.reset();
    EXPECT_EQ(account_.live(),
              total(parts::UnitPasses(tiny_->config(), tiny_->unit(kBlock), sizes_).stash()));
    at::Tensor d_out = source.clone();
    pass(UnitPass::kInputGrad, backward.most(), "input_grad",
         [&] { d_input = block.input_grad(params, std::move(stash), std::move(d_out), work); });
    pass(UnitPass::kWeightGrad, 0, "weight_grad",
         [&] { block.weight_grad(std::move(work), grads, true); });
    d_input.reset();
    EXPECT_EQ(account_.live(), 0);
  }
}

TEST_F(NarrowMemory, EndsTakeTheTablesAndScratchOfProducts) {
  for (const auto& [hidden, vocab, chunk, kin] : {std::tuple{64, 600, 5, Kin::kLlama},
                                                  {256, 50, 1000, Kin::kLlama},
                                                  {64, 3000, 1000, Kin::kLlama},
                                                  {64, 600, 5, Kin::kGpt2},
                                                  {256, 50, 1000, Kin::kGpt2}}) {
    const Shape shape =
        Shape{.batch = 3, .seq = 50, .hidden = hidden, .heads = hidden / 16, .vocab = vocab}.as(
            kin);
    build(shape, kHead);
    sizes_.head_chunk = chunk;
    const std::int64_t rows = std::min<std::int64_t>(chunk, shape.tokens());
    Scratch scratch;
    scratch.add(rows, vocab, hidden, false);
    const at::Tensor params = random_params(*tiny_, kHead, kNarrow);
    const at::Tensor grads = wide_grads(params);
    const at::Tensor labels = random_labels(shape, 3);
    const at::Tensor source = random("input", {shape.tokens(), hidden}, kNarrow);
    const Head head(tiny_->config(), tiny_->unit(kHead), tiny_->flat(kHead), chunk);
    ExactSum loss;
    const ChargeTo charge(account_);
    at::Tensor input = source.clone(), d;
    pass(UnitPass::kEvaluate, 0, "loss",
         [&] { head.loss(params, std::move(input), labels, loss); });
    input = source.clone();
    pass(UnitPass::kBackward, scratch.most(), "head grad",
         [&] { d = head.loss_and_grad(params, std::move(input), labels, 1.0, grads, true, loss); });
    build(shape, kEmbed);
    const Embedding embedding(tiny_->config(), tiny_->unit(kEmbed), tiny_->flat(kEmbed));
    const at::Tensor table = wide_grads(random_params(*tiny_, kEmbed, kNarrow));
    const at::Tensor tokens = random_labels(shape);
    pass(UnitPass::kFirstBackward, 0, "embed",
         [&] { embedding.weight_grad(tokens, std::move(d), table, true); });
  }
}

}  // namespace
}  // namespace lockstep::nn
