#include "lockstep/cost/analytic/peak_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/cost/analytic/compute_time.h"
#include "lockstep/cost/analytic/stacks.h"
#include "lockstep/parts/unit_passes.h"
#include "tests/cost/analytic/requests.h"
#include "tests/support/activation_bytes.h"
#include "tests/support/total_params.h"

namespace lockstep::cost {
namespace {

constexpr double kGiB = 1073741824.0;

// A block, tensor by tensor, is what the list of our own keeps in bf16. So is what is left of it
// when rows are dropped, whichever.
TEST(PeakMemory, KeepsWhatListsKeep) {
  for (const char* name : {"llama3-8b", "llama3-70b", "llama3-405b", "olmo2-7b", "gemma2-9b"}) {
    Rig rig(name, "h100:8");
    const model::ModelConfig config = model::find(name)->config;
    const model::Model model = *model::describe(config);
    model::UnitSizes sizes;
    sizes.seq = 4096;
    sizes.dtype = DType::kBF16;
    for (unsigned set = 0; set < 1u << model::kDropRows.size(); ++set) {
      for (std::size_t row = 0; row < model::kDropRows.size(); ++row)
        sizes.drop.*model::kDropRows[row].is_dropped = (set >> row & 1) != 0;
      const auto exact =
          static_cast<double>(total(parts::UnitPasses(config, model.unit(1), sizes).stash()));
      EXPECT_NEAR(kept_bytes_per_token(rig.request, sizes.drop, false) * 4096, exact, 1e-4 * exact)
          << name << " " << set;
    }
  }
}

TEST(PeakMemory, LlamaBlocksOfThePlan) {
  const auto bytes = [](const char* name, const model::Drop& drop) {
    Rig rig(name, "h100:8");
    return kept_bytes_per_token(rig.request, drop, false) - 8;  // two statistics of norms
  };
  EXPECT_EQ(bytes("llama3-8b", model::kKeepAll), 139'392);
  EXPECT_EQ(bytes("llama3-70b", model::kKeepAll), 274'688);
  EXPECT_EQ(bytes("llama3-405b", model::kKeepAll), 520'704);
  EXPECT_EQ(bytes("llama3-405b", model::kSelective), 348'672);
}

// Korthikanti et al., equations 1 to 6, by the formula arch has.
TEST(PeakMemory, GptBlocksByTheirFormulas) {
  Rig rig(megatron_gpt(96, 12288, 96), "a100:8");
  PriceRequest& r = rig.request;
  r.stack.flash = false;
  r.stack.dropout = true;
  for (const int t : {1, 2, 8})
    for (const bool sp : {false, true})
      for (const model::Drop& keep :
           {model::kKeepAll, model::Drop{.scores = true}, model::kWholeBlock}) {
        r.tp = t;
        r.sp = sp;
        const auto wanted = keep == model::kKeepAll ? model::Recompute::kNone
                            : keep.scores           ? model::Recompute::kAttention
                                                    : model::Recompute::kBlock;
        const double ours = kept_bytes_per_token(r, keep, false) * 2048;
        const double theirs = gpt_block_bytes({2048, 1, 12288, 96}, t, sp, wanted);
        EXPECT_NEAR(ours / theirs, 1, 2e-3) << t << sp << static_cast<int>(wanted);
      }
}

// Where inputs that were gathered are kept, the outputs of both norms are whole on every rank.
TEST(PeakMemory, GatheredInputsAreKeptWhole) {
  Rig rig("llama3-8b", "h100:8");
  PriceRequest& r = rig.request;
  for (const int t : {1, 2, 8}) {
    r.tp = t;
    r.stack.keeps_gathered = false;
    const double shards = kept_bytes_per_token(r, model::kKeepAll, false);
    r.stack.keeps_gathered = true;
    EXPECT_DOUBLE_EQ(kept_bytes_per_token(r, model::kKeepAll, false) - shards,
                     4 * 4096 * (1 - 1.0 / t));
  }
}

// Anchor A4: activations of the first stage in figure 1, GiB.
TEST(PeakMemory, KorthikantiFigureOne) {
  struct Case {
    int layers;
    double hidden, heads;
    int pp, batch, chunks;
    double plain, selective;
  };
  for (const Case& c :
       {Case{48, 6144, 64, 1, 4, 1, 59.25, 9.56}, Case{96, 12288, 96, 8, 1, 3, 66.84, 12.35},
        Case{105, 20480, 128, 35, 1, 3, 114.02, 23.08},
        Case{128, 25600, 160, 64, 1, 1, 131.25, 26.56}}) {
    Rig rig(megatron_gpt(c.layers, c.hidden, c.heads), "a100:512");
    PriceRequest& r = rig.request;
    r.stack.flash = false;
    r.stack.dropout = true;
    r.tp = 8;
    r.pp = c.pp;
    r.chunks = c.chunks;
    r.schedule = &pipeline::row(c.chunks > 1 ? "interleaved" : "1f1b");
    r.microbatch = c.batch;
    r.global_batch = 1024 * c.batch;
    r.sp = false;
    EXPECT_NEAR(price_memory(r).activations / kGiB, c.plain, 0.05) << c.layers;
    r.sp = true;
    r.drop = model::Drop{.scores = true};
    EXPECT_NEAR(price_memory(r).activations / kGiB, c.selective, 0.05) << c.layers;
  }
}

// Anchors A5 and A6: states at 18 bytes per parameter, GiB, within 2 % of the figure; and shares of
// what tensor parallelism alone keeps: SP and no scores 16.1 to 20.2 %, inputs alone 7.6 to 9.5 %.
TEST(PeakMemory, KorthikantiStatesAndShares) {
  struct Case {
    int layers;
    double hidden, heads;
    int pp;
    double states, selective, full;
  };
  for (const Case& c :
       {Case{48, 6144, 64, 1, 45.6, 16.1, 7.6}, Case{96, 12288, 96, 8, 45.6, 18.5, 8.7},
        Case{105, 20480, 128, 35, 31.6, 20.2, 9.5}, Case{128, 25600, 160, 64, 33.0, 20.2, 9.5}}) {
    Rig rig(megatron_gpt(c.layers, c.hidden, c.heads), "a100:512");
    PriceRequest& r = rig.request;
    r.stack.flash = false;
    r.stack.dropout = true;
    r.tp = 8;
    r.sp = false;
    const double alone = kept_bytes_per_token(r, r.drop, false);
    r.drop = model::kWholeBlock;
    EXPECT_NEAR(100 * kept_bytes_per_token(r, r.drop, false) / alone, c.full, 0.2);
    r.sp = true;
    r.drop = model::Drop{.scores = true};
    EXPECT_NEAR(100 * kept_bytes_per_token(r, r.drop, false) / alone, c.selective, 0.2);
    EXPECT_NEAR(18 * total_params(rig.shape) / (8 * c.pp) / kGiB / c.states, 1, 0.02);
  }
}

// Anchors A1 and A2: ZeRO figure 1 (16 bytes per parameter on 64 ranks) and 175B on 1,024 devices.
TEST(PeakMemory, States) {
  Rig rig("llama3-8b", "h100:64");
  PriceRequest& r = rig.request;
  r.dp = 64;
  r.global_batch = 64;
  r.stack.grad_bytes = 2;
  r.stack.reduce_each_microbatch = true;
  const double parameters = total_params(rig.shape);
  const double shares[] = {16, 4 + 12.0 / 64, 2 + 14.0 / 64, 16.0 / 64};
  for (const int zero : {0, 1, 2, 3}) {
    r.zero = zero;
    const Memory memory = price_memory(r);
    EXPECT_NEAR((memory.weights + memory.grads + memory.optimizer) / parameters, shares[zero],
                1e-6);
  }
}

// torchtitan's policy on Llama 3 8B: of a token's 139 kB a block keeps its input, the outputs of
// the query, value, gate and last products, and attention's: 2 (2h + q + k + f + q) + 4 heads.
TEST(PeakMemory, EverySecondProductKept) {
  Rig rig("llama3-8b", "h100:8");
  rig.request.drop = model::Drop{.alternate_products = true};
  EXPECT_EQ(kept_bytes_per_token(rig.request, rig.request.drop, false),
            2 * (2 * 4096 + 4096 + 1024 + 14336 + 4096) + 4 * 32);
}

// f32 activations are twice as wide, but for statistics and masks.
TEST(PeakMemory, SinglePrecisionDoublesActivations) {
  for (const bool dropout : {false, true}) {
    Rig rig(megatron_gpt(96, 12288, 96), "a100:8");
    PriceRequest& r = rig.request;
    r.stack.flash = false;
    r.stack.dropout = dropout;
    const double narrow = kept_bytes_per_token(r, r.drop, false);
    r.precision = Precision::kFp32;
    const double masks = dropout ? 2 * 12288 + 96 * r.seq : 0;
    EXPECT_EQ(kept_bytes_per_token(r, r.drop, false), 2 * (narrow - 8 - masks) + 8 + masks);
  }
}

// ZeRO-3 holds its gathered units on top: ten bytes of a block's parameters where its gradient is
// reduced.
TEST(PeakMemory, ShardedWeightsAreGatheredByUnits) {
  Rig rig("llama3-70b", "h100:64");
  PriceRequest& r = rig.request;
  r.dp = 64;
  r.global_batch = 64;
  r.pp = 1;
  r.drop = model::kWholeBlock;
  r.zero = 3;
  const Memory sharded = price_memory(r);
  ASSERT_EQ(sharded.event, PeakEvent::kBlockBackward);
  const double block = 2 * (3 * rig.shape.ffn + 2 * rig.shape.hidden);
  EXPECT_NEAR(sharded.transients,
              10 * plain_layer_params(rig.shape).total() +
                  r.tokens() * (block + kept_bytes_per_token(r, model::kKeepAll, false) -
                                2 * rig.shape.hidden),
              1);
}

// Anchor A15: 405B, tp 8, pp 16, one stage of 8 layers holds 16 microbatches of 533 MB each layer.
TEST(PeakMemory, Llama3NothingMadeAgain) {
  Rig rig("llama3-405b", "h100:16384");
  PriceRequest& r = rig.request;
  r.seq = 8192;
  r.tp = 8;
  r.pp = 16;
  r.dp = 128;
  r.global_batch = 2048;
  EXPECT_NEAR(kept_bytes_per_token(r, r.drop, false) * 8192 / 1e6, 533, 1);
  EXPECT_NEAR(kept_bytes_per_token(r, r.drop, false) * 8192 * 8 * 16 / 1e9, 68.2, 0.1);
  r.drop = model::kSelective;
  EXPECT_NEAR(kept_bytes_per_token(r, r.drop, false) * 8192 * 8 * 16 / 1e9, 45.7, 0.1);
}

// torchtitan's 8B, whose loss holds three f32 tensors and the logits, in segments that expand:
// 86 GB allocated of which 70 come and go, and 90 reserved, as its four runs with context
// parallelism read.
TEST(PeakMemory, ExpandableSegmentsHaveFewHoles) {
  Rig rig("llama3-8b", "h100:8");
  PriceRequest& r = rig.request;
  r.seq = 32768, r.dp = 8, r.global_batch = 8, r.zero = 3;
  r.drop = model::kWholeBlock;
  r.stack.loss = Loss::kTorch;
  const Memory plain = price_memory(r);
  r.stack.expandable_segments = true;
  const Memory expanded = price_memory(r);
  EXPECT_EQ(plain.allocated(), expanded.allocated());
  EXPECT_NEAR(plain.holes / expanded.holes, 5, 1e-9);
  EXPECT_NEAR(read_bytes(expanded, Reading::kReserved) / 90.4e9, 1, 0.03);
  // Divided by two ranks, PyTorch's loss holds a fourth f32 tensor.
  r.tp = 2, r.dp = 4, r.global_batch = 4;
  EXPECT_NEAR(price_memory(r).logits / (32768 * (128256 / 2 * 18.0 + 2 * 4096)), 1, 0.01);
}

// A GPU needs more than what is allocated; a processor of the host does not.
TEST(PeakMemory, NothingSurroundsAllocationsOnAHost) {
  const auto more = [](const char* cluster) {
    Rig rig("llama3-8b", cluster);
    const Memory memory = price_memory(rig.request);
    EXPECT_GT(memory.allocated(), 0);
    return device_bytes(memory) - memory.allocated();
  };
  EXPECT_EQ(more("cpu-gloo:2"), 0);
  EXPECT_GT(more("h100:8"), 3e9);
}

// Made again with all its scores, a block's backward pass holds their gradients once more where
// softmax is fused, and twice where each of its steps is a kernel.
TEST(PeakMemory, ScoresHaveGradients) {
  Rig rig(megatron_gpt(2, 512, 4), "a100:8");
  PriceRequest& r = rig.request;
  r.seq = 8192;
  r.pp = 2;  // the head is elsewhere
  r.drop = model::kWholeBlock;
  const double one = 2.0 * 4 * 8192 * 8192;
  r.stack.flash = true;
  const double none = stage_memory(r, 0).transients;
  r.stack.flash = false;
  EXPECT_GT(stage_memory(r, 0).transients,
            none + 1.5 * one);  // scores and, after the MLP, gradients
  const double fused = stage_memory(r, 0).transients;
  r.stack.fused_softmax = false;
  EXPECT_NEAR(stage_memory(r, 0).transients - fused, one, 1);
}

// The price is that of the stage that holds most; no stage between the second and the last holds
// more.
TEST(PeakMemory, IsTheLargestOverStages) {
  for (const char* model : {"llama3-8b", "llama3-405b", "deepseek-v3"})
    for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1"})
      for (const int pp : {1, 2, 4, 16}) {
        Rig rig(model, "h100:1024");
        PriceRequest& r = rig.request;
        r.pp = pp;
        r.dp = 64 / pp;
        r.global_batch = 2048;
        r.schedule = &pipeline::row(name);
        r.chunks = r.schedule->chunks == 0 ? 2 : 1;
        double most = 0;
        for (int stage = 0; stage < pp; ++stage)
          most = std::max(most, stage_memory(r, stage).allocated());
        EXPECT_EQ(price_memory(r).allocated(), most) << model << pp << name;
      }
}

// PyTorch's DistributedDataParallel: as many bytes again as all gradients, where there are data
// ranks.
TEST(PeakMemory, BucketsAreAsLargeAsGradients) {
  Rig rig("llama3-8b", "h100:8");
  PriceRequest& r = rig.request;
  r.zero = 0;
  r.tp = 2;
  for (const int dp : {1, 4}) {
    r.dp = dp, r.global_batch = dp;
    r.stack.ddp_buckets = 0;
    const Memory without = price_memory(r);
    r.stack.ddp_buckets = r.stack.grad_bytes;
    EXPECT_DOUBLE_EQ(price_memory(r).grads, without.grads * (dp > 1 ? 2 : 1));
  }
}

// PyTorch's pipelines, 8 microbatches of one sequence on 4 ranks, 2 tensor ranks: a tensor between
// stages is 2 x 8192 x 4096 / 2 bytes. The second rank receives 8 from below, of which 3 are in
// flight, and 8 from above; the last 7 that are not in flight, and holds logits of 7.
TEST(PeakMemory, PipelinesOfTorchHaveABufferForEachMicrobatch) {
  Rig rig("llama3-8b", "h100:8");
  PriceRequest& r = rig.request;
  r.tp = 2, r.pp = 4, r.seq = 8192, r.global_batch = 8;
  const auto bytes = [&](int stage) { return stage_memory(r, stage).transients; };
  const double one = 8192. * 4096, logits = 2. * 8192 * padded_vocab(r) / 2;
  const std::vector<double> without = {bytes(0), bytes(1), bytes(2), bytes(3)};
  r.stack.torch_pipeline = true;
  EXPECT_DOUBLE_EQ(bytes(0) - without[0], 8 * one);
  EXPECT_DOUBLE_EQ(bytes(1) - without[1], (8 - 3 + 8) * one);
  EXPECT_DOUBLE_EQ(bytes(3) - without[3], 7 * one);
  r.stack.holds_outputs = true;
  EXPECT_DOUBLE_EQ(bytes(1) - without[1], (8 - 3 + 8 + 8) * one);
  EXPECT_DOUBLE_EQ(bytes(3) - without[3], 7 * one + 7 * logits);
}

// Two chunks whose gradients are whole one after the other, where no more microbatches are than
// ranks; where there are more, both are.
TEST(PeakMemory, ChunksMayReduceOneByOne) {
  Rig rig("llama3-8b", "h100:32");
  PriceRequest& r = rig.request;
  r.pp = 4, r.dp = 8, r.zero = 2, r.chunks = 2, r.global_batch = 32;
  r.schedule = &pipeline::row("interleaved");
  const double both = stage_memory(r, 1).grads;
  r.stack.reduce_each_chunk = true;
  EXPECT_DOUBLE_EQ(stage_memory(r, 1).grads, both * (1 + 1. / 8) / 2);
  r.global_batch = 64;
  EXPECT_DOUBLE_EQ(stage_memory(r, 1).grads, both);
}

// Latent attention: 128 heads of 192, 192 and 128, which come back from latents by products that
// are a tenth of a whole projection's.
TEST(PeakMemory, LatentsAreKeptAndTheirProductsAreNot) {
  Rig rig("deepseek-v3", "h800:2048");
  PriceRequest& r = rig.request;
  const model::Drop qkv = {.qkv = true};
  EXPECT_DOUBLE_EQ(
      kept_bytes_per_token(r, model::kKeepAll, false) - kept_bytes_per_token(r, qkv, false),
      2 * 128 * (192 + 192 + 128));
  r.drop = qkv;
  const ComputeTime layer = layer_compute(r, false);
  EXPECT_GT(layer.recompute, 0);
  EXPECT_LT(layer.recompute, 0.2 * layer.forward);
}

// DeepSeek-V3 on 2,048 H800 (arXiv 2412.19437, section 3) as it ran: it fits as its trainer keeps
// things, and not as others do.
TEST(PeakMemory, DeepSeeksOwnLayout) {
  Rig rig("deepseek-v3", "h800:2048");
  PriceRequest& r = rig.request;
  r.seq = 4096;
  r.global_batch = 15360;
  r.pp = 16, r.dp = 128, r.ep = 64, r.chunks = 2;
  r.schedule = &pipeline::row("dualpipe-v");
  r.precision = Precision::kFp8;
  r.drop = {.attn_normed = true, .mlp_normed = true, .product = true, .qkv = true};
  EXPECT_FALSE(price(r).fits);
  r.stack = deepseek_stack(1);
  EXPECT_TRUE(price(r).fits);
}

}  // namespace
}  // namespace lockstep::cost
