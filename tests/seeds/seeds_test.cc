// The worked examples of the introductory texts on parallel training, computed by the functions
// that plans use.
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/mesh/mesh.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/catalog.h"
#include "lockstep/model/state_bytes.h"
#include "tests/support/activation_bytes.h"

namespace lockstep {
namespace {

using mesh::Axis;
using mesh::Mesh;
using model::Recompute;
using model::StateShare;
using model::StateWidths;

constexpr double kGB = 1e9;

// bf16 weights and gradients, fp32 master copy and moments: 16 bytes per parameter.
const StateWidths kMixed = model::adam_widths(DType::kBF16, DType::kBF16);

// ZeRO, figure 1 (arXiv 1910.02054): 7.5B parameters on 64 devices take 120 GB each, then 31.4,
// 16.6 and 1.9 GB.
TEST(Seeds, ZeroFigureOne) {
  const Mesh mesh = *Mesh::create({.dp = 64});
  const std::int64_t group = mesh.degree(mesh::kDenseShard);
  ASSERT_EQ(group, 64);
  const auto gb = [&](int zero) { return 7.5e9 * state_share(kMixed, zero, group).total() / kGB; };
  EXPECT_DOUBLE_EQ(gb(0), 120.0);
  EXPECT_DOUBLE_EQ(gb(1), 31.40625);
  EXPECT_DOUBLE_EQ(gb(2), 16.640625);
  EXPECT_DOUBLE_EQ(gb(3), 1.875);
}

// "Adam needs 4 or 2 bytes for each moment": the factor of eight over 2-byte weights is 16 bytes.
TEST(Seeds, FactorOfEight) { EXPECT_EQ(state_share(kMixed, 0, 1).total() / kMixed.weights, 8.0); }

// 16N bytes in fp32, 4N + 4N + 8N: 112 GB for 7B, more than any one device; eight ranks share it.
TEST(Seeds, SixteenBytesPerParameterInFp32) {
  const StateWidths fp32 = model::adam_widths(DType::kF32, DType::kF32);
  EXPECT_EQ(fp32, (StateWidths{4, 4, 8}));
  EXPECT_EQ(7e9 * state_share(fp32, 0, 1).total(), 112 * kGB);
  EXPECT_EQ(7e9 * state_share(fp32, 3, 8).total(), 14 * kGB);
  // The model that is called 7B is a little smaller.
  const auto llama = *describe(model::find("llama2-7b")->config);
  EXPECT_NEAR(static_cast<double>(count(llama).total) * 16 / kGB, 107.8, 0.05);
}

// 70B in fp16: 140 GB of weights, 500 GB and more with gradients and optimizer.
TEST(Seeds, SeventyBillionInHalfPrecision) {
  EXPECT_EQ(70e9 * kMixed.weights, 140 * kGB);
  EXPECT_GT(70e9 * state_share(kMixed, 0, 1).total(), 500 * kGB);
}

// 175B on 1,024 devices: tp 8 x pp 16 leaves dp 8; 2.7 GB weights, 2.7 GB gradients, 16.4 GB
// optimizer per device, and 2.05 GB of optimizer once ZeRO-1 shards it.
TEST(Seeds, Gpt3OnAThousandDevices) {
  const Mesh mesh = *Mesh::create({.tp = 8, .pp = 16, .dp = 8});
  EXPECT_EQ(mesh.world(), 1024);
  EXPECT_EQ(mesh.degree(mesh::kDp), 8);
  EXPECT_TRUE(mesh::check_world({.tp = 8, .pp = 16, .dp = 8}, 1024).ok());
  EXPECT_FALSE(mesh::check_world({.tp = 8, .pp = 16, .dp = 7}, 1024).ok());
  const double own = 175e9 / mesh.degree({Axis::kTensor, Axis::kPipeline});
  const StateShare whole = state_share(kMixed, 0, mesh.degree(mesh::kDenseShard));
  EXPECT_NEAR(own * whole.weights / kGB, 2.73, 0.01);
  EXPECT_NEAR(own * whole.grads / kGB, 2.73, 0.01);
  EXPECT_NEAR(own * whole.optimizer / kGB, 16.41, 0.01);
  const StateShare sharded = state_share(kMixed, 1, mesh.degree(mesh::kDenseShard));
  EXPECT_NEAR(own * sharded.optimizer / kGB, 2.05, 0.01);
  // States, 4 GB of activations and 2 GB of buffers are about 28 GB of 80.
  EXPECT_NEAR(own * whole.total() / kGB + 4 + 2, 28, 0.2);
}

// tp 8 within a node, pp 8 over nodes, dp 16: 8 x 8 x 16 = 1024, and a node is one tensor group.
TEST(Seeds, ThreeAxes) {
  const Mesh mesh = *Mesh::create({.tp = 8, .pp = 8, .dp = 16});
  EXPECT_EQ(mesh.world(), 1024);
  const mesh::Group node = mesh.group(Rank{11}, Axis::kTensor);
  EXPECT_EQ(node.size(), 8);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(node.rank_at(i), Rank{8 + i});
}

// Largest model on a node of 8 x 80 GB at 12 bytes per parameter (2 weights, 2 gradients, 8
// optimizer): from barely 6B to about 50B.
TEST(Seeds, LargestModelOnOneNode) {
  const StateWidths lecture{2, 2, 8};
  const std::int64_t group = Mesh::create({.dp = 8})->degree(mesh::kDenseShard);
  const auto billions = [&](int zero) {
    return 80 / model::state_share(lecture, zero, group).total();
  };
  EXPECT_NEAR(billions(0), 6.67, 0.005);
  EXPECT_NEAR(billions(1), 16.0, 0.005);
  EXPECT_NEAR(billions(2), 24.6, 0.05);
  EXPECT_NEAR(billions(3), 53.3, 0.05);
}

// sbh (34 + 5as/h); with tensor parallelism sbh (10 + 24/t + 5as/(ht)), where the 10 is the
// straggler; with sequence parallelism and recomputed scores sbh 34/t.
TEST(Seeds, ActivationsPerLayer) {
  const model::BlockShape gpt3{2048, 1, 12288, 96};
  const double sbh = 2048.0 * 12288, scores = 5.0 * 96 * 2048 / 12288;
  EXPECT_DOUBLE_EQ(gpt_block_bytes(gpt3, 1, false, Recompute::kNone), sbh * (34 + scores));
  for (const std::int64_t t : {2, 4, 8}) {
    const auto d = static_cast<double>(t);
    EXPECT_DOUBLE_EQ(gpt_block_bytes(gpt3, t, false, Recompute::kNone),
                     sbh * (10 + 24 / d + scores / d));
    EXPECT_DOUBLE_EQ(gpt_block_bytes(gpt3, t, true, Recompute::kAttention), sbh * 34 / d);
  }
  // The quadratic term is as^2 b: h cancels.
  const double quadratic = gpt_block_bytes(gpt3, 1, false, Recompute::kNone) -
                           gpt_block_bytes(gpt3, 1, false, Recompute::kAttention);
  EXPECT_DOUBLE_EQ(quadratic, 5.0 * 96 * 2048 * 2048);
}

// The sizes at which the scaling study moves from one axis to the next.
TEST(Seeds, MegatronScalingSizes) {
  const auto billions = [](std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
    model::ModelConfig config = model::find("gpt3-175b")->config;
    config.layers = layers;
    config.hidden = hidden;
    config.heads = config.kv_heads = heads;
    config.head_dim = hidden / heads;
    config.ffn = 4 * hidden;
    return static_cast<double>(count(*describe(config)).total) / 1e9;
  };
  EXPECT_NEAR(billions(24, 2304, 24), 1.7, 0.06);
  EXPECT_NEAR(billions(72, 3072, 32), 8.3, 0.06);
  EXPECT_NEAR(billions(48, 8192, 64), 39.1, 0.06);
  EXPECT_NEAR(billions(128, 25600, 160), 1008.0, 0.06);
}

// Gemma 2 on TPUs: chips = data replicas x model shards, 512 x 1, 1024 x 4, 768 x 8.
TEST(Seeds, GemmaChips) {
  EXPECT_EQ(Mesh::create({.dp = 512})->world(), 2 * 16 * 16);
  EXPECT_EQ(Mesh::create({.tp = 4, .dp = 1024})->world(), 8 * 16 * 32);
  EXPECT_EQ(Mesh::create({.tp = 8, .dp = 768})->world(), 8 * 24 * 32);
}

// DeepSeek-V3: 16-way pipeline and 64-way experts with ZeRO-1 data parallelism on 2,048 devices.
TEST(Seeds, DeepSeekMesh) {
  const Mesh mesh = *Mesh::create({.pp = 16, .dp = 128, .ep = 64});
  EXPECT_EQ(mesh.world(), 2048);
  EXPECT_EQ(mesh.degree(Axis::kExpert), 64);
  EXPECT_EQ(mesh.degree(mesh::kExpertData), 2);
  const model::ModelConfig v3 = model::find("deepseek-v3")->config;
  EXPECT_EQ(v3.moe.experts % mesh.degree(Axis::kExpert), 0);
}

}  // namespace
}  // namespace lockstep
