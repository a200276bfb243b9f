#include "lockstep/model/flops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "lockstep/model/catalog.h"

namespace lockstep::model {
namespace {

Model catalog_model(const std::string& name) { return *describe(find(name)->config); }

ModelConfig gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t vocab,
                std::int64_t positions) {
  ModelConfig config = find("gpt3-175b")->config;
  config.layers = layers;
  config.hidden = hidden;
  config.heads = config.kv_heads = heads;
  config.head_dim = hidden / heads;
  config.ffn = 4 * hidden;
  config.vocab = vocab;
  config.max_positions = positions;
  return config;
}

// Table 1 of Narayanan et al., SC 2021 (arXiv 2104.04473): V = 51,200, s = 2,048.
struct Megatron {
  double billions;
  std::int64_t heads, hidden, layers;
};
constexpr Megatron kMegatron[] = {
    {1.7, 24, 2304, 24},       {3.6, 32, 3072, 30},     {7.5, 32, 4096, 36},
    {18.4, 48, 6144, 40},      {39.1, 64, 8192, 48},    {76.1, 80, 10240, 60},
    {145.6, 96, 12288, 80},    {310.1, 128, 16384, 96}, {529.6, 128, 20480, 105},
    {1008.0, 160, 25600, 128},
};

TEST(Flops, GptAgreesWithTheClosedFormsOfNarayanan) {
  const double v = 51200, s = 2048;
  for (const Megatron& row : kMegatron) {
    const Model model = *describe(gpt(row.layers, row.hidden, row.heads, 51200, 2048));
    const auto l = static_cast<double>(row.layers);
    const auto h = static_cast<double>(row.hidden);
    // Equation 2. It leaves the final norm's 2h out.
    const double parameters = 12 * l * h * h * (1 + 13 / (12 * h) + (v + s) / (12 * l * h));
    EXPECT_NEAR(static_cast<double>(count(model).total) - 2 * h, parameters, 1e-9 * parameters);
    EXPECT_NEAR(parameters / 1e9, row.billions, 0.06);
    // Equation 3 counts full recomputation, 96; without it 72.
    const double train = 72 * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
    EXPECT_NEAR(flops_per_token(model, 2048, Mask::kFull).train().value, train, 1e-12 * train);
  }
}

TEST(Flops, Gpt3HasItsPublishedSize) {
  const Model model = catalog_model("gpt3-175b");
  EXPECT_NEAR(static_cast<double>(count(model).total) / 1e9, 174.6, 0.05);
  // 3.14e23 FLOPs for 300e9 tokens, arXiv 2005.14165 table D.1: 6 per parameter, no attention.
  EXPECT_NEAR(flops_per_token(model, 2048, Mask::kFull).matmul.value * 3 * 300e9, 3.14e23, 0.01e23);
}

TEST(Flops, BothConventionsOfLlama405B) {
  const Model model = catalog_model("llama3-405b");
  const auto train = [&](std::int64_t seq, Mask mask) {
    return flops_per_token(model, seq, mask).train().value;
  };
  EXPECT_NEAR(train(8192, Mask::kCausal), 2.524e12, 0.0005e12);
  EXPECT_NEAR(train(8192, Mask::kFull), 2.625e12, 0.0005e12);
  EXPECT_NEAR(train(131072, Mask::kCausal), 4.05e12, 0.005e12);
  EXPECT_NEAR(train(131072, Mask::kFull), 5.67e12, 0.005e12);
  // 3.8e25 FLOPs on 15.6T tokens: arXiv 2407.21783 section 1.
  EXPECT_NEAR(6 * static_cast<double>(count(model).total) * 15.6e12, 3.8e25, 0.01e25);
}

TEST(Flops, MatrixProductsCostTwicePerActiveWeight) {
  for (const CatalogRow& row : catalog()) {
    const Model model = *describe(row.config);
    const TokenFlops flops = flops_per_token(model, 128, Mask::kFull);
    // Weights of matrix products: all but one-dimensional ones and embedding tables; a tied head
    // is a product although it is counted as an embedding.
    double active = 0;
    for (int i = 0; i < model.num_units(); ++i)
      for (const Param& param : model.unit(i).params) {
        if (param.shape.size() < 2 || param.role == Role::kEmbedding) continue;
        const auto all = static_cast<double>(param.numel());
        const double met = param.experts == 0 ? 1.0
                                              : static_cast<double>(param.active) /
                                                    static_cast<double>(param.experts);
        active += all * met;
      }
    EXPECT_NEAR(flops.matmul.value, 2 * active, 1e-9 * active) << row.config.name;
  }
}

// Counting keys one query at a time.
double counted_keys(std::int64_t seq, std::int64_t window) {
  double sum = 0;
  for (std::int64_t query = 0; query < seq; ++query)
    for (std::int64_t key = 0; key <= query; ++key)
      if (window == 0 || query - key < window) sum += 1;
  return sum / static_cast<double>(seq);
}

TEST(Flops, MeanKeysEqualACountOfTheMask) {
  for (const std::int64_t seq : {1, 2, 7, 64})
    for (const std::int64_t window : {0, 1, 2, 6, 7, 8, 100}) {
      EXPECT_DOUBLE_EQ(mean_keys(seq, window, Mask::kCausal), counted_keys(seq, window))
          << seq << " " << window;
      EXPECT_EQ(mean_keys(seq, window, Mask::kFull), static_cast<double>(seq));
    }
  EXPECT_EQ(mean_keys(8192, 0, Mask::kCausal), 4096.5);
}

TEST(Flops, LatentAttentionCountsScoreAndValueWidthsApart) {
  const Model model = catalog_model("deepseek-v3");
  const double per_key = 2.0 * 128 * (128 + 64) + 2.0 * 128 * 128;
  EXPECT_DOUBLE_EQ(flops_per_token(model, 4096, Mask::kCausal).attention.value,
                   61 * per_key * (4096 + 1) / 2);
}

TEST(Flops, WindowsSaveOnlyWhereTheyBind) {
  const Model gemma = catalog_model("gemma2-9b");
  ModelConfig global = gemma.config;
  global.window = 1 << 20;
  const auto attention = [](const Model& model, std::int64_t seq) {
    return flops_per_token(model, seq, Mask::kCausal).attention.value;
  };
  EXPECT_EQ(attention(gemma, 4096), attention(*describe(global), 4096));
  EXPECT_LT(attention(gemma, 8192), attention(*describe(global), 8192));
  // Half of the layers are local.
  const double wide = mean_keys(8192, 0, Mask::kCausal);
  const double local = mean_keys(8192, 4096, Mask::kCausal);
  EXPECT_DOUBLE_EQ(attention(gemma, 8192) / attention(*describe(global), 8192),
                   (wide + local) / (2 * wide));
}

TEST(Flops, PredictionLayersRunTheHeadAgain) {
  ModelConfig config = find("deepseek-v3")->config;
  const TokenFlops without = flops_per_token(*describe(config), 4096, Mask::kCausal);
  config.mtp_layers = 1;
  const Model model = *describe(config);
  const TokenFlops with = flops_per_token(model, 4096, Mask::kCausal);
  const double head = 2.0 * 7168 * 129280;
  const double join = 2.0 * 2 * 7168 * 7168;
  const TokenFlops block = flops_per_token(model.unit(61), 4096, Mask::kCausal);
  EXPECT_DOUBLE_EQ((with.matmul - without.matmul).value, head + join + block.matmul.value);
}

// Pairs of a query and a key, one by one.
double imbalance_by_definition(const Model& model, std::int64_t cp, std::int64_t seq) {
  std::vector<double> busy;
  for (std::int64_t rank = 0; rank < cp; ++rank) {
    busy.push_back(0);
    for (const int index : model.order)
      if (const auto& a = model.distinct[index].attention)
        for (std::int64_t query = 0; query < seq; ++query)
          if (const std::int64_t chunk = query / (seq / (2 * cp));
              chunk == rank || chunk == 2 * cp - 1 - rank)
            for (std::int64_t key = 0; key <= query; ++key)
              busy.back() += a->window == 0 || query - key < a->window ? 1 : 0;
  }
  return std::ranges::max(busy) * static_cast<double>(cp) /
         std::accumulate(busy.begin(), busy.end(), 0.0);
}

TEST(Flops, OfAttentionAreTheSameOnAllContextRanksButForWindows) {
  const Model full = catalog_model("llama3-8b");
  for (const std::int64_t cp : {1, 2, 8, 16})
    EXPECT_EQ(attention_imbalance(full, CpMethod::kRing, cp, 131072), 1);
  ModelConfig config = find("llama3-8b")->config;
  config.layers = 1;
  for (const std::int64_t window : {1, 5, 7, 8, 40}) {
    config.window = window;
    const Model local = *describe(config);
    for (const std::int64_t cp : {2, 4}) {
      EXPECT_NEAR(attention_imbalance(local, CpMethod::kGather, cp, 64),
                  imbalance_by_definition(local, cp, 64), 1e-12)
          << window;
      EXPECT_EQ(attention_imbalance(local, CpMethod::kUlysses, cp, 64), 1);
    }
  }
}

}  // namespace
}  // namespace lockstep::model
