// Worked examples and rules of thumb about speed and fit, by the prices that plans are ranked by.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/cost/analytic/collective_time.h"
#include "lockstep/cost/analytic/price.h"
#include "tests/cost/analytic/requests.h"

namespace lockstep {
namespace {

using cost::Price;
using cost::PriceRequest;
using cost::Rig;
using cost::StepTime;

// A pipeline sends bsh to its neighbour; a tensor-parallel layer moves 8 bsh (n - 1) / n.
TEST(SeedPrices, PipelineAgainstTensorTraffic) {
  Rig rig("llama3-70b", "h100:8");
  cluster::DeviceRates rates = *rig.request.rates;
  rates.at(cluster::Term::kScaleUp).value = 1;
  const cost::Fabric fabric{&rig.machine, &rates};
  const double bsh = 1e12;  // so large that latencies do not matter
  const double layer = 4 * reduce_seconds(fabric, bsh, {8, 1}), hop = hop_seconds(fabric, bsh, 1);
  EXPECT_NEAR(layer / hop, 8 * 7.0 / 8, 1e-3);
}

// With one microbatch a pipeline of n uses 1 / n of its devices.
TEST(SeedPrices, OneMicrobatch) {
  for (const int n : {2, 4, 8}) {
    Rig rig("llama3-70b", "h100:8");
    rig.request.pp = n;
    rig.request.dp = 8 / n;
    rig.request.global_batch = 8 / n;
    const StepTime t = price_time(rig.request);
    const double busy = t.forward + t.backward + t.head;
    EXPECT_NEAR(busy / (busy + t.bubble) * n, 1, 0.15) << n;
  }
}

// Throughput drops by 10 and 12 % up to 8 ranks of a node and by 42 and 65 % beyond it (Hugging
// Face's study, 3B model, network of one node's bandwidth per eight devices). The figures are of
// one site; what must hold is the cliff.
TEST(SeedPrices, TensorParallelismEndsAtTheNode) {
  std::vector<double> rates;
  for (const int tp : {2, 4, 8, 16, 32}) {
    Rig rig("llama3-8b", "h100:64");
    rig.request.seq = 4096;
    rig.request.tp = tp;
    rig.request.dp = 64 / tp;
    rig.request.microbatch = 4;
    rig.request.global_batch = 64 / tp * 4;
    rates.push_back(price(rig.request).tokens_per_s);
  }
  const auto drop = [&](std::size_t i) { return 1 - rates[i] / rates[i - 1]; };
  EXPECT_LT(drop(1), 0.2);
  EXPECT_LT(drop(2), 0.25);
  EXPECT_GT(drop(3), 0.35);
  EXPECT_GT(drop(4), 0.35);
}

void gpt_stack(PriceRequest& r) {
  r.stack.flash = false;
  r.stack.dropout = true;
  r.stack.overlap_data = r.stack.overlap_tensor = r.stack.overlap_pipe = false;
  r.drop = model::kWholeBlock;
  r.sp = false;
  r.zero = 0;
}

// Narayanan et al., figure 13: 162B on 64 A100, tensor 8 x pipeline 8 is best at batches of 32 and
// 128. By our prices it is at 32, and 1.3 % behind 4 x 16 at 128.
TEST(SeedPrices, EightByEight) {
  for (const int batch : {32, 128}) {
    double best = 0, eight = 0;
    for (const int tp : {2, 4, 8, 16, 32}) {
      Rig rig(cost::megatron_gpt(32, 20480, 128), "a100:64");
      gpt_stack(rig.request);
      rig.request.tp = tp;
      rig.request.pp = 64 / tp;
      rig.request.global_batch = batch;
      const double rate = price(rig.request).tokens_per_s;
      best = std::max(best, rate);
      if (tp == 8) eight = rate;
    }
    EXPECT_GE(eight, batch < 100 ? best : 0.98 * best) << batch;
  }
}

// Figure 17 there: 145B on 128 A100 with (8, 16). Nothing made again fits small batches only; the
// larger batch that recomputation allows pays for it.
TEST(SeedPrices, RecomputationPaysByALargerBatch) {
  double best[2] = {0, 0};
  for (const bool again : {false, true})
    for (int batch = 1; batch <= 256; batch *= 2) {
      Rig rig(cost::megatron_gpt(80, 12288, 96), "a100:128");
      gpt_stack(rig.request);
      rig.request.drop = again ? model::kWholeBlock : model::kKeepAll;
      rig.request.tp = 8;
      rig.request.pp = 16;
      rig.request.global_batch = batch;
      const Price p = price(rig.request);
      if (p.fits) best[again] = std::max(best[again], p.tokens_per_s);
    }
  EXPECT_GT(best[0], 0);
  EXPECT_GT(best[1], 1.5 * best[0]);
}

// Narayanan et al., table 1: parameters, layers, hidden, heads, t, p, devices, batch. All fit 80 GB
// with blocks made again.
TEST(SeedPrices, WeakScalingRowsFit) {
  struct Row {
    int layers;
    double hidden, heads;
    int t, p, devices, batch, micro;
  };
  for (const Row& row :
       {Row{24, 2304, 24, 1, 1, 32, 512, 8}, Row{30, 3072, 32, 2, 1, 64, 512, 8},
        Row{36, 4096, 32, 4, 1, 128, 512, 4}, Row{40, 6144, 48, 8, 1, 256, 1024, 4},
        Row{48, 8192, 64, 8, 2, 512, 1536, 2}, Row{60, 10240, 80, 8, 4, 1024, 1792, 2},
        Row{80, 12288, 96, 8, 8, 1536, 2304, 2}, Row{96, 16384, 128, 8, 16, 1920, 2160, 1},
        Row{105, 20480, 128, 8, 35, 2520, 2520, 1}, Row{128, 25600, 160, 8, 64, 3072, 3072, 1}}) {
    Rig rig(cost::megatron_gpt(row.layers, row.hidden, row.heads), "a100:8");
    rig.machine = *cluster::cluster_from_name("a100:" + std::to_string(row.devices));
    gpt_stack(rig.request);
    rig.request.tp = row.t;
    rig.request.pp = row.p;
    rig.request.dp = row.devices / (row.t * row.p);
    rig.request.microbatch = row.micro;
    rig.request.global_batch = row.batch;
    EXPECT_TRUE(price(rig.request).fits) << row.hidden;
  }
}

// What was trained is priced as feasible: Llama 3 405B, DeepSeek-V3, Yi, OLMo and Gemma 2 on its
// tori.
TEST(SeedPrices, TrainedModelsFit) {
  Rig llama("llama3-405b", "h100:16384");
  PriceRequest& a = llama.request;
  a.seq = 8192, a.tp = 8, a.pp = 16, a.dp = 128, a.chunks = 8,
  a.schedule = &pipeline::row("interleaved");
  a.global_batch = 2048, a.drop = model::kSelective;
  EXPECT_TRUE(price(a).fits);

  // DeepSeek kept 8-bit activations and made less again, which the prices do not know.
  Rig deepseek("deepseek-v3", "h800:2048");
  PriceRequest& d = deepseek.request;
  d.seq = 4096, d.pp = 16, d.dp = 128, d.ep = 64, d.global_batch = 15360,
  d.drop = model::kWholeBlock;
  d.schedule = &pipeline::row("dualpipe-v"), d.precision = cost::Precision::kFp8;
  EXPECT_TRUE(price(d).fits);

  Rig yi("yi-34b", "a800:128");
  PriceRequest& y = yi.request;
  y.seq = 4096, y.tp = 4, y.pp = 4, y.dp = 8, y.global_batch = 1024;
  EXPECT_TRUE(price(y).fits);

  Rig olmo("olmo-7b", "a100-40:216");
  PriceRequest& o = olmo.request;
  o.seq = 2048, o.dp = 216, o.zero = 3, o.microbatch = 2, o.global_batch = 2160;
  EXPECT_TRUE(price(o).fits);
}

// Korthikanti et al., table 5: step times on 312 TFLOP/s are utilisations of 41.7, 51.4, 56.0 and
// 56.3 % (anchor A7), with full attention counted.
TEST(SeedPrices, UtilisationOfMeasuredSteps) {
  struct Row {
    int layers;
    double hidden, heads, devices, batch, seconds, mfu;
  };
  for (const Row& row :
       {Row{48, 6144, 64, 8, 4, 1.10, 41.7}, Row{96, 12288, 96, 64, 64, 13.75, 51.4},
        Row{105, 20480, 128, 280, 280, 37.83, 56.0}, Row{128, 25600, 160, 512, 512, 71.49, 56.3}}) {
    const cost::ModelShape shape = cost::megatron_gpt(row.layers, row.hidden, row.heads);
    const cost::ForwardFlops flops = forward_flops(shape, 2048);
    const double all = 3 * (flops.matmul + flops.attention_full) * row.batch * 2048;
    EXPECT_NEAR(100 * all / (row.seconds * row.devices * 312e12), row.mfu, 0.15) << row.hidden;
  }
}

// A chip of v5p needs 2,550 tokens per axis before data parallelism is bound by arithmetic
// (scaling-book; anchor A21).
TEST(SeedPrices, TokensThatHideDataParallelism) {
  const cluster::Cluster v5p = *cluster::cluster_from_name("tpu-v5p:8x8x16");
  const double both_ways = 2 * v5p.tiers[0].bytes_per_s.value;
  EXPECT_NEAR(v5p.device.peak_bf16.value / both_ways, 2550, 1);
}

// Chips as the report has them (Gemma 2, arXiv 2408.00118, table 3).
TEST(SeedPrices, GemmaOnItsTori) {
  struct Row {
    const char *model, *cluster;
    int tp, dp;
  };
  for (const Row& row : {Row{"gemma2-9b", "tpu-v4:8x16x32", 4, 1024},
                         Row{"gemma2-27b", "tpu-v5p:8x24x32", 8, 768}}) {
    Rig rig(row.model, row.cluster);
    PriceRequest& r = rig.request;
    r.seq = 8192, r.tp = row.tp, r.dp = row.dp, r.zero = 3, r.global_batch = row.dp,
    r.drop = model::kWholeBlock;
    const Price p = price(r);
    EXPECT_TRUE(p.fits) << row.model;
    EXPECT_GT(p.mfu_causal, 0.1) << row.model;
  }
}

// The smallest on two pods of 256 with 16 GB each, joined by the network of a data centre. Its
// tensors fit; what a device holds besides them was fitted on GPUs of 80 GB and is too much here.
TEST(SeedPrices, GemmaOnTwoPods) {
  Rig rig("gemma2-2b", "tpu-v5e:16x16");
  rig.machine.count = 512;
  rig.machine.tiers.push_back({"network", 512, cluster::TierKind::kSwitch, {12.5e9}, {14e-6}});
  PriceRequest& r = rig.request;
  r.seq = 8192, r.dp = 512, r.zero = 3, r.global_batch = 512, r.drop = model::kWholeBlock;
  const Price p = price(r);
  EXPECT_LT(p.memory.allocated(), p.usable);
  EXPECT_GT(p.mfu_causal, 0.1);
}

}  // namespace
}  // namespace lockstep
