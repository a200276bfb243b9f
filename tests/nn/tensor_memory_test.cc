// Memory and traffic of units that tensor ranks share, pass by pass, against their lists.
#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parts/unit_passes.h"
#include "lockstep/tensor/memory.h"
#include "tests/nn/sharded.h"
#include "tests/nn/units.h"
#include "tests/support/net_bytes.h"

namespace lockstep::nn {
namespace {

using comm::Ledger;
using parts::UnitPass;
using tensor::ChargeTo;
using tensor::MemoryAccount;

using Entries = std::map<Ledger::Key, Ledger::Entry>;

comm::OpKind kind_of(parts::Kind kind) {
  if (kind == parts::Kind::kAllGather) return comm::OpKind::kAllGather;
  if (kind == parts::Kind::kReduceScatter) return comm::OpKind::kReduceScatter;
  return kind == parts::Kind::kAllReduce ? comm::OpKind::kAllReduce : comm::OpKind::kBarrier;
}

Entries entries_of(const std::vector<parts::Collective>& collectives) {
  Entries all;
  for (const parts::Collective& collective : collectives) {
    Ledger::Entry& entry = all[{"tp", kind_of(collective.kind)}];
    ++entry.calls;
    entry.sent += Bytes{sent(collective)};
  }
  return all;
}

// One rank with an account of its own that watches passes of one unit.
class Watch {
 public:
  Watch(const Tiny& tiny, int unit, const model::UnitSizes& sizes, Ledger& ledger)
      : tiny_(tiny), unit_(unit), sizes_(sizes), ledger_(ledger), charge_(account_) {}

  // Runs `body`, which must take, give back and send what the tables say.
  template <class Body>
  void pass(UnitPass pass, const char* name, Body body) {
    const parts::UnitPasses passes(tiny_.config(), tiny_.unit(unit_), sizes_);
    const auto& events = passes.events(pass);
    const auto& traffic = passes.collectives(pass);
    const std::int64_t before = account_.live();
    account_.reset_peak();
    ledger_.clear();
    body();
    EXPECT_EQ(account_.peak() - before, extra(events)) << name;
    EXPECT_EQ(account_.live() - before, net(events)) << name;
    EXPECT_EQ(ledger_.entries(), entries_of(traffic)) << name;
    sent_ += sent(traffic);
  }

  std::int64_t live() const { return account_.live(); }
  // Since the last call.
  std::int64_t take_sent() { return std::exchange(sent_, 0); }

 private:
  const Tiny& tiny_;
  int unit_;
  const model::UnitSizes& sizes_;
  Ledger& ledger_;
  MemoryAccount account_;
  ChargeTo charge_;
  std::int64_t sent_ = 0;
};

// Also ones whose peaks lie in attention, whose tiles grow at 768 tokens, in the norms' gradients
// and in the widest product.
std::vector<Shape> watched_shapes() {
  std::vector<Shape> all = divisible_shapes();
  // Kernels do not know of copies and padding: one family shows what they take.
  std::erase_if(all, [](const Shape& s) { return s.vocab == 51 && s.kin != Kin::kLlama; });
  all.push_back(
      {.batch = 1, .seq = 800, .hidden = 32, .heads = 4, .kv_heads = 4, .ffn = 64, .vocab = 8});
  all.push_back(
      {.batch = 1, .hidden = 256, .heads = 4, .kv_heads = 4, .head_dim = 8, .ffn = 32, .vocab = 8});
  all.push_back({.hidden = 16, .heads = 4, .kv_heads = 4, .head_dim = 4, .ffn = 256, .vocab = 8});
  // The same places for other traits: small, many rows of heads, wide heads, a wide MLP.
  const std::size_t llamas = all.size();
  for (const Kin kin : {Kin::kGpt2, Kin::kQwen3})
    for (std::size_t i = llamas - 3; i < llamas; ++i) all.push_back(all[i].as(kin));
  all.push_back({.hidden = 8, .heads = 8, .kv_heads = 4, .ffn = 8, .vocab = 8, .kin = Kin::kQwen3});
  return all;
}

struct MemoryCase {
  Shape shape;
  Ways ways;
  at::ScalarType type;
  model::UnitSizes sizes;
};

model::UnitSizes sizes_of(const Shape& shape, const Ways& ways, at::ScalarType type) {
  return {.batch = shape.batch,
          .seq = shape.seq,
          .dtype = type == at::kDouble ? DType::kF64 : DType::kF32,
          .tp = ways.tp,
          .sequence_parallel = ways.sp};
}

template <class Fn>
void for_each_case(Fn fn) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const Shape& shape : watched_shapes())
      for (const Ways& ways : all_ways()) {
        SCOPED_TRACE(ways.text() + " seq " + std::to_string(shape.seq) + " h " +
                     std::to_string(shape.hidden));
        fn(MemoryCase{shape, ways, type, sizes_of(shape, ways, type)});
      }
}

// A block's passes on one rank; counts volumes of T h elements sent (t - 1) / t times.
class BlockWatch {
 public:
  BlockWatch(const MemoryCase& of, const Tiny& tiny, const Sharded& sharded, const Rope& rope,
             const at::Tensor& params, const at::Tensor& rows, const TensorGroup& group,
             Ledger& ledger)
      : block_(tiny.config(), tiny.unit(kBlock), sharded.flat(kBlock), of.shape.batch, of.shape.seq,
               of.sizes.drop, rope, group),
        params_(sharded.cut(kBlock, params, group.index())),
        grads_(at::full_like(params_, 0.0)),
        rows_(sharded.path(rows, group.index())),
        stash_bytes_(total(parts::UnitPasses(tiny.config(), tiny.unit(kBlock), of.sizes).stash())),
        watch_(tiny, kBlock, of.sizes, ledger) {}

  std::int64_t train(bool at_once, bool recompute) {
    at::Tensor input = rows_.clone();
    Kept stash;
    at::Tensor out;
    if (recompute) {
      watch_.pass(UnitPass::kCheckpoint, "checkpoint",
                  [&] { out = block_.forward(params_, input); });
      out.reset();
      watch_.pass(UnitPass::kRecompute, "recompute",
                  [&] { stash = block_.recompute(params_, std::move(input)); });
    } else {
      watch_.pass(UnitPass::kForward, "forward",
                  [&] { out = block_.forward(params_, std::move(input), stash); });
      out.reset();
    }
    EXPECT_EQ(watch_.live(), stash_bytes_);
    at::Tensor d_out = rows_.clone();
    at::Tensor d_input;
    if (at_once) {
      watch_.pass(UnitPass::kBackward, "backward", [&] {
        d_input = block_.backward(params_, std::move(stash), std::move(d_out), grads_, false);
      });
    } else {
      Kept work;
      watch_.pass(UnitPass::kInputGrad, "input_grad", [&] {
        d_input = block_.input_grad(params_, std::move(stash), std::move(d_out), work);
      });
      watch_.pass(UnitPass::kWeightGrad, "weight_grad",
                  [&] { block_.weight_grad(std::move(work), grads_, false); });
    }
    d_input.reset();
    EXPECT_EQ(watch_.live(), 0);
    return watch_.take_sent();
  }

  void evaluate() {
    at::Tensor input = rows_.clone();
    watch_.pass(UnitPass::kEvaluate, "evaluate", [&] {
      const at::Tensor out = block_.forward(params_, std::move(input));
      EXPECT_EQ(watch_.live(), static_cast<std::int64_t>(out.nbytes()));
      input = out;
    });
    watch_.take_sent();
  }

 private:
  Block block_;
  at::Tensor params_, grads_, rows_;
  std::int64_t stash_bytes_;
  Watch watch_;
};

// 8 volumes a layer and microbatch with tensor parallelism; with sequence parallelism 10, and 12
// when W is put off; recompute adds all of the forward pass but its last sum, unless a norm reads
// that. A wide norm of queries and keys sums a number of each token, twice a pass. A mixture
// gathers which experts a token has and their weights, and scatters the gradients of these; its
// rows are made again in I, so that W gathers none; shared experts gather theirs in both, and a
// gate's weights in F and in I.
TEST(TensorMemory, BlocksTakeAndSendWhatTheTablesSay) {
  for_each_case([](MemoryCase of) {
    const Tiny tiny(of.shape);
    const Sharded sharded(tiny, of.ways);
    const Rope rope(tiny.config(), of.shape.seq, of.type, at::kCPU);
    const at::Tensor params = random_params(tiny, kBlock, of.type);
    const at::Tensor rows = random("rows", {of.shape.tokens(), of.shape.hidden}, of.type);
    const std::int64_t t = of.ways.tp;
    const std::int64_t volume =
        of.shape.tokens() * of.shape.hidden * of.sizes.width() / t * (t - 1);
    const bool is_wide = tiny.config().qk_norm == model::QkNorm::kWide;
    const std::int64_t padded = (of.shape.tokens() + t - 1) / t * t;
    const std::int64_t sums = is_wide ? 2 * padded * of.sizes.wide() / t * (t - 1) : 0;
    const model::Moe& moe = tiny.config().moe;
    const std::int64_t choices = of.shape.tokens() * moe.top_k * 8 / t * (t - 1);
    const std::int64_t number = of.shape.tokens() * of.sizes.wide() / t * (t - 1);
    const std::int64_t weights = moe.top_k * number, gates = moe.shared_gate ? number : 0;
    const int put_off = moe.shared_ffn > 0 ? 13 : moe.experts > 0 ? 11 : 12;
    const bool is_read = tiny.config().norm_place != model::NormPlace::kBefore;
    const int last = is_read ? (of.ways.sp ? 1 : 2) : 0;
    for (const int mask : {0, 1, 6}) {
      if (mask != 0 && of.shape.seq > 400) continue;
      of.sizes.drop = {(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0};
      on_ranks(of.ways, [&](const TensorGroup& group, Ledger& ledger) {
        BlockWatch watch(of, tiny, sharded, rope, params, rows, group, ledger);
        const bool sp = of.ways.sp;
        const std::int64_t routes = 2 * (weights + gates) + (sp ? choices + gates : 0);
        EXPECT_EQ(watch.train(/*at_once=*/true, false), (sp ? 10 : 8) * volume + 4 * sums + routes);
        EXPECT_EQ(watch.train(/*at_once=*/false, false),
                  (sp ? put_off : 8) * volume + 4 * sums + routes);
        EXPECT_EQ(watch.train(/*at_once=*/true, true), (sp ? 13 : 10) * volume + last * volume +
                                                           6 * sums + routes +
                                                           (sp ? choices + weights + gates : 0));
        watch.evaluate();
      });
    }
  });
}

TEST(TensorMemory, EmbeddingsTakeAndSendWhatTheTablesSay) {
  for_each_case([](const MemoryCase& of) {
    const Tiny tiny(of.shape);
    const Sharded sharded(tiny, of.ways);
    const at::Tensor params = random_params(tiny, kEmbed, of.type);
    const at::Tensor tokens = random_labels(of.shape);
    on_ranks(of.ways, [&](const TensorGroup& group, Ledger& ledger) {
      const at::Tensor own = sharded.cut(kEmbed, params, group.index());
      const at::Tensor grads = at::full_like(own, 0.0);
      const Embedding mine(tiny.config(), tiny.unit(kEmbed), sharded.flat(kEmbed), group);
      Watch watch(tiny, kEmbed, of.sizes, ledger);
      at::Tensor out;
      watch.pass(UnitPass::kForward, "forward", [&] { out = mine.forward(own, tokens); });
      EXPECT_EQ(watch.live(), boundary_bytes(tiny.config(), of.sizes));
      watch.pass(UnitPass::kFirstBackward, "weight_grad",
                 [&] { mine.weight_grad(tokens, std::move(out), grads, true); });
    });
  });
}

TEST(TensorMemory, HeadsTakeAndSendWhatTheTablesSay) {
  for_each_case([](MemoryCase of) {
    if (of.shape.seq > 40) return;
    for (const auto& [vocab, chunk] : {std::pair{600, 5}, {600, 1000}, {8, 5}}) {
      of.shape.vocab = vocab;
      of.sizes.head_chunk = chunk;
      const Tiny tiny(of.shape);
      const Sharded sharded(tiny, of.ways);
      const at::Tensor params = random_params(tiny, kHead, of.type);
      const at::Tensor labels = random_labels(of.shape, 3);
      const at::Tensor rows = random("rows", {of.shape.tokens(), of.shape.hidden}, of.type);
      on_ranks(of.ways, [&](const TensorGroup& group, Ledger& ledger) {
        const at::Tensor own = sharded.cut(kHead, params, group.index());
        const at::Tensor grads = at::full_like(own, 0.0);
        const Head mine(tiny.config(), tiny.unit(kHead), sharded.flat(kHead), chunk, group);
        ExactSum loss;
        Watch watch(tiny, kHead, of.sizes, ledger);
        at::Tensor input = sharded.path(rows, group.index());
        at::Tensor d;
        watch.pass(UnitPass::kEvaluate, "loss",
                   [&] { mine.loss(own, std::move(input), labels, loss); });
        input = sharded.path(rows, group.index());
        watch.pass(UnitPass::kBackward, "loss_and_grad", [&] {
          d = mine.loss_and_grad(own, std::move(input), labels, 1.0, grads, true, loss);
        });
      });
    }
  });
}

}  // namespace
}  // namespace lockstep::nn
