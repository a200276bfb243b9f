// Every byte a pass takes, against lists written by hand, apart from those that passes are.
#include "lockstep/tensor/memory.h"

#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/nn/oracle.h"
#include "tests/nn/units.h"

namespace lockstep::nn {
namespace {

using tensor::ChargeTo;
using tensor::MemoryAccount;

// Tensors by name, as they come and go.
class Replay {
 public:
  Replay& take(const std::string& name, std::int64_t bytes) {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    EXPECT_TRUE(held_.emplace(name, bytes).second) << name;
    return *this;
  }
  Replay& give(const std::string& name) {
    const auto found = held_.find(name);
    if (found == held_.end()) {
      ADD_FAILURE() << name << " is not held";
      return *this;
    }
    live_ -= found->second;
    held_.erase(found);
    return *this;
  }
  Replay& pass(std::int64_t bytes) {  // within one op
    peak_ = std::max(peak_, live_ + bytes);
    return *this;
  }
  std::int64_t live() const { return live_; }
  std::int64_t peak() const { return peak_; }
  void reset_peak() { peak_ = live_; }
  bool holds(const std::string& name) const { return held_.contains(name); }

 private:
  std::int64_t live_ = 0, peak_ = 0;
  std::map<std::string, std::int64_t> held_;
};

struct Sizes {
  std::int64_t tokens, h, q, k, f, seq, head_dim, heads, s;

  Sizes(const Shape& shape, at::ScalarType type)
      : tokens(shape.tokens()),
        h(shape.hidden),
        q(shape.q()),
        k(shape.k()),
        f(shape.ffn),
        seq(shape.seq),
        head_dim(shape.head_dim),
        heads(shape.heads),
        s(type == at::kDouble ? 8 : 4) {}

  std::int64_t rows(std::int64_t width) const { return tokens * width * s; }
  // Buffers of LibTorch's CPU flash kernels with one thread: a tile of queries by a tile of keys.
  std::int64_t query_tile() const {
    return std::min<std::int64_t>(seq, seq >= 768 ? 256 : seq >= 192 ? 64 : 32);
  }
  std::int64_t key_tile() const { return std::min<std::int64_t>(seq, 512); }
  std::int64_t flash_forward() const { return s * query_tile() * (key_tile() + 2 + head_dim); }
  std::int64_t flash_backward() const { return s * query_tile() * (2 * key_tile() + 1); }
};

void replay_attend(Replay& r, const Sizes& n, model::Drop drop, bool keep) {
  r.take("input_rstd", n.rows(1)).take("attn_normed", n.rows(n.h));
  if (!keep) r.give("input_rstd");
  r.take("qkv", n.rows(n.q + 2 * n.k));
  if (!keep || drop.attn_normed) r.give("attn_normed");
  r.pass(n.rows((n.q + n.k) / 2));
  r.take("attn_out", n.rows(n.q)).take("attn_lse", n.rows(n.heads)).pass(n.flash_forward());
  if (!keep) r.give("attn_lse").give("qkv");
  r.take("middle", n.rows(n.h));
  if (!keep) r.give("input").give("attn_out");
}

void replay_widen(Replay& r, const Sizes& n, model::Drop drop, bool keep) {
  r.take("middle_rstd", n.rows(1)).take("mlp_normed", n.rows(n.h));
  if (!keep) r.give("middle_rstd");
  r.take("gate_up", n.rows(2 * n.f));
  if (!keep || drop.mlp_normed) r.give("mlp_normed");
}

void replay_forward(Replay& r, const Sizes& n, model::Drop drop, bool keep) {
  replay_attend(r, n, drop, keep);
  replay_widen(r, n, drop, keep);
  r.take("product", n.rows(n.f));
  if (!keep) r.give("gate_up");
  r.take("out", n.rows(n.h));
  if (!keep || drop.product) r.give("product");
  if (!keep) r.give("middle");
}

// The norm's gradient in place of d.
void replay_norm_grad(Replay& r, const Sizes& n, const std::string& gain) {
  r.take("d x", n.rows(n.h)).take("row_sum", n.rows(1)).take(gain, n.h * n.s);
  r.give("d x").give("row_sum");
}

// Rows that move from the stash to the work keep their name.
void replay_input_grad(Replay& r, const Sizes& n) {
  if (!r.holds("product")) r.take("product", n.rows(n.f));
  r.take("d_product", n.rows(n.f)).take("d_gate_up", n.rows(2 * n.f));
  r.give("d_product").give("gate_up");
  if (!r.holds("mlp_normed")) r.take("mlp_normed", n.rows(n.h));
  r.take("d_middle", n.rows(n.h));
  replay_norm_grad(r, n, "d_mlp_norm");
  r.give("middle").give("middle_rstd");
  r.take("d_attn", n.rows(n.q)).take("dq", n.rows(n.q)).take("dk", n.rows(n.k));
  r.take("dv", n.rows(n.k)).pass(n.flash_backward());
  r.give("d_attn").give("attn_lse").give("qkv");
  r.take("d_qkv", n.rows(n.q + 2 * n.k)).give("dq").give("dk").give("dv");
  r.pass(n.rows((n.q + n.k) / 2));
  if (!r.holds("attn_normed")) r.take("attn_normed", n.rows(n.h));
  r.take("d_input", n.rows(n.h));
  replay_norm_grad(r, n, "d_attn_norm");
  r.give("input").give("input_rstd");
}

std::vector<model::Drop> drops() {
  std::vector<model::Drop> all;
  for (int mask = 0; mask < 8; ++mask)
    all.push_back({(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0});
  return all;
}

// Also one whose peak is in attention, and one whose peak is in the last norm's gradient, so that a
// release that comes late anywhere before them shows.
std::vector<Shape> memory_shapes() {
  std::vector<Shape> all = llama_shapes();
  all.push_back({.batch = 1, .seq = 800, .hidden = 32, .heads = 2, .kv_heads = 1, .ffn = 64});
  all.push_back({.batch = 1, .hidden = 256, .heads = 4, .kv_heads = 1, .head_dim = 8, .ffn = 32});
  return all;
}

// One block with its own account; counts what its passes take beside the parameters.
class NnMemory : public testing::Test {
 protected:
  void build(const Shape& shape, at::ScalarType type, model::Drop drop) {
    tiny_ = std::make_unique<Tiny>(shape);
    rope_ = std::make_unique<Rope>(tiny_->config(), shape.seq, type, at::kCPU);
    block_ = std::make_unique<Block>(tiny_->config(), tiny_->unit(kBlock), tiny_->flat(kBlock),
                                     shape.batch, shape.seq, drop, *rope_);
    params_ = random_params(*tiny_, kBlock, type);
    grads_ = at::full_like(params_, 0.0);
    source_ = random("input", {shape.tokens(), shape.hidden}, type);
  }
  at::Tensor fresh() {
    const ChargeTo charge(account_);
    return source_.clone();
  }
  void expect_equal(const Replay& replay, const std::string& what) {
    EXPECT_EQ(account_.live(), replay.live()) << what;
    EXPECT_EQ(account_.peak(), replay.peak()) << what;
    peaks_ += " " + what + " " + std::to_string(account_.peak());
  }
  void reset(Replay& replay) {
    account_.reset_peak();
    replay.reset_peak();
  }

  MemoryAccount account_;
  std::unique_ptr<Tiny> tiny_;
  std::unique_ptr<Rope> rope_;
  std::unique_ptr<Block> block_;
  at::Tensor params_, grads_, source_;
  std::string peaks_;
};

TEST_F(NnMemory, PassesOfABlockTakeWhatTheirListsSay) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const Shape& shape : memory_shapes())
      for (const model::Drop& drop : drops()) {
        build(shape, type, drop);
        const Sizes n(shape, type);
        peaks_.clear();
        Replay r;
        r.take("input", n.rows(n.h));
        at::Tensor input = fresh();
        const ChargeTo charge(account_);
        reset(r);
        Kept stash;
        at::Tensor out = block_->forward(params_, std::move(input), stash);
        replay_forward(r, n, drop, true);
        expect_equal(r, "forward");

        out.reset();
        r.give("out").take("d_out", n.rows(n.h));
        at::Tensor d_out = fresh();
        reset(r);
        Kept work;
        at::Tensor d_input = block_->input_grad(params_, std::move(stash), std::move(d_out), work);
        replay_input_grad(r, n);
        expect_equal(r, "input_grad");

        const std::int64_t before = account_.live();
        account_.reset_peak();
        block_->weight_grad(std::move(work), grads_, false);
        EXPECT_EQ(account_.peak(), before);
        EXPECT_EQ(account_.live(), n.rows(n.h));  // d_input
        d_input.reset();
        EXPECT_EQ(account_.live(), 0);
        if (drop == model::Drop{})
          std::printf("seq %ld, %ld bytes an element, peaks:%s\n", n.seq, n.s, peaks_.c_str());
      }
}

TEST_F(NnMemory, RecomputeAndForwardWithoutAStash) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const Shape& shape : memory_shapes())
      for (const model::Drop& drop : drops()) {
        build(shape, type, drop);
        const Sizes n(shape, type);
        const ChargeTo charge(account_);
        Replay r;
        r.take("input", n.rows(n.h));
        at::Tensor input = fresh();
        reset(r);
        Kept stash = block_->recompute(params_, std::move(input));
        replay_attend(r, n, drop, true);
        replay_widen(r, n, drop, true);
        if (!drop.product) r.take("product", n.rows(n.f));
        expect_equal(r, "recompute");
        stash = {};

        r = Replay();
        r.take("input", n.rows(n.h));
        input = fresh();
        reset(r);
        const at::Tensor out = block_->forward(params_, std::move(input));
        replay_forward(r, n, drop, false);
        expect_equal(r, "forward alone");
      }
}

// The closed forms: 4h + 2q + 2k + 3f elements a token, two reciprocal deviations and the softmax's
// logarithm per head for the stash; the same without the last two and with 2h for the work.
TEST_F(NnMemory, StashAndWorkAreTheTableOfTheModel) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const Shape& shape : memory_shapes()) {
      build(shape, type, {});
      const Sizes n(shape, type);
      const ChargeTo charge(account_);
      Kept stash;
      block_->forward(params_, fresh(), stash);
      const std::int64_t widths = 4 * n.h + 2 * n.q + 2 * n.k + 3 * n.f;
      EXPECT_EQ(account_.live(), n.rows(widths + 2 + n.heads));
      Kept work;
      block_->input_grad(params_, std::move(stash), fresh(), work);
      EXPECT_EQ(account_.live(), n.rows(widths) + 2 * n.h * n.s);
    }
}

TEST_F(NnMemory, TheHeadHoldsTheLogitsOfOneChunk) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const auto& [vocab, chunk] : {std::pair{3001, 1}, {3001, 7}, {3001, 100}, {50, 1}}) {
      const Shape shape{.vocab = vocab};  // with 50 the peak is in the norm's gradient
      const Tiny tiny(shape);
      const Sizes n(shape, type);
      const Head head(tiny.config(), tiny.unit(kHead), tiny.flat(kHead), chunk);
      const at::Tensor params = random_params(tiny, kHead, type);
      const at::Tensor grads = at::full_like(params, 0.0);
      const at::Tensor labels = random_labels(shape, 3);
      const at::Tensor source = random("input", {n.tokens, n.h}, type);
      const std::int64_t rows = std::min<std::int64_t>(chunk, n.tokens);
      // A row's logits, and its loss as a double.
      const std::int64_t per_row = shape.vocab * n.s + 8;
      ExactSum loss;
      const ChargeTo charge(account_);

      Replay r;
      r.take("input", n.rows(n.h));
      at::Tensor input = source.clone();
      reset(r);
      at::Tensor d = head.loss_and_grad(params, std::move(input), labels, 1.0, grads, true, loss);
      r.take("rstd", n.rows(1)).take("normed", n.rows(n.h)).take("d", n.rows(n.h));
      r.pass(rows * per_row).give("normed");
      replay_norm_grad(r, n, "d_gain");
      r.give("d_gain").give("rstd").give("input");
      expect_equal(r, "head");
      d.reset();

      input = source.clone();
      account_.reset_peak();
      head.loss(params, input, labels, loss);
      EXPECT_EQ(account_.live(), n.rows(n.h));
      EXPECT_EQ(account_.peak(), n.rows(2 * n.h) + std::max(n.rows(1), rows * per_row));
    }
}

TEST_F(NnMemory, TheEmbeddingTakesItsOutputAlone) {
  const Shape shape;
  const Tiny tiny(shape);
  const Embedding embedding(tiny.config(), tiny.unit(kEmbed), tiny.flat(kEmbed));
  const at::Tensor params = random_params(tiny, kEmbed, at::kFloat);
  const at::Tensor grads = at::full_like(params, 0.0);
  const at::Tensor tokens = random_labels(shape);
  const ChargeTo charge(account_);
  at::Tensor out = embedding.forward(params, tokens);
  EXPECT_EQ(account_.live(), shape.tokens() * shape.hidden * 4);
  EXPECT_EQ(account_.peak(), account_.live());
  embedding.weight_grad(tokens, std::move(out), grads, true);
  EXPECT_EQ(account_.live(), 0);
  EXPECT_EQ(account_.peak(), shape.tokens() * shape.hidden * 4);
}

}  // namespace
}  // namespace lockstep::nn
