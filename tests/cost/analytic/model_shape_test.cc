#include "lockstep/cost/analytic/model_shape.h"

#include <gtest/gtest.h>

#include "lockstep/cost/analytic/price.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/catalog.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/model/flops.h"
#include "tests/support/total_params.h"

namespace lockstep::cost {
namespace {

// The closed form repeats what the description counts, so the two are held to each other. Small
// vectors that the shape leaves out (norms inside attention, biases of queries alone, gates of
// shared experts) stay below a hundredth of a percent.
TEST(ModelShape, CountsWhatArchCounts) {
  for (const model::CatalogRow& row : model::catalog()) {
    const model::Model model = *model::describe(row.config);
    const auto exact = static_cast<double>(count(model).total);
    EXPECT_NEAR(total_params(shape_of(row.config)) / exact, 1, 1e-4) << row.config.name;
  }
}

// What a rank holds of a block where tensor ranks outnumber the heads of keys, as runs lay it out.
TEST(ModelShape, CountsCopiesOfKeyValueHeads) {
  for (const char* name : {"llama3-8b", "qwen2-0.5b", "olmo2-tiny"}) {
    model::ModelConfig config = model::find(name)->config;
    config.heads = 32, config.kv_heads = 2, config.head_dim = 64, config.ffn = 4096;
    const model::Model model = *model::describe(config);
    for (const int tp : {1, 2, 4, 32}) {
      double held = 0;
      for (const model::FlatParam& param : model::flat_layouts(model, tp)[1].params)
        held += static_cast<double>(param.numel);
      PriceRequest request;
      request.tp = tp;
      const RankParams own = on_rank(request, plain_layer_params(shape_of(config), tp));
      EXPECT_NEAR(own.dense / held, 1, 1e-3) << name << " tp " << tp;  // biases of queries alone
    }
  }
}

// Planner anchor A3, to the parameter.
TEST(ModelShape, KnownModelsExactly) {
  const auto total = [](const char* name) {
    return total_params(shape_of(model::find(name)->config));
  };
  EXPECT_EQ(total("llama3-8b"), 8'030'261'248);
  EXPECT_EQ(total("llama3-70b"), 70'553'706'496);
  EXPECT_EQ(total("llama3-405b"), 405'853'388'800);
  EXPECT_EQ(total("llama2-7b"), 6'738'415'616);
  EXPECT_EQ(total("mixtral-8x7b"), 46'702'792'704);
  EXPECT_NEAR(total("deepseek-v3"), 671.03e9, 0.01e9);
}

TEST(ModelShape, FlopsAsArchDoes) {
  for (const char* name : {"llama3-405b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3"}) {
    const model::ModelConfig config = model::find(name)->config;
    const model::Model model = *model::describe(config);
    const ForwardFlops ours = forward_flops(shape_of(config), 8192);
    const model::TokenFlops causal = flops_per_token(model, 8192, model::Mask::kCausal);
    const model::TokenFlops full = flops_per_token(model, 8192, model::Mask::kFull);
    EXPECT_NEAR(ours.matmul / causal.matmul.value, 1, 1e-9) << name;
    EXPECT_NEAR(ours.attention_causal / causal.attention.value, 1, 1e-9) << name;
    EXPECT_NEAR(ours.attention_full / full.attention.value, 1, 1e-9) << name;
  }
}

// As of a mistral whose window is null.
TEST(ModelShape, AWindowOfAllPositionsIsNone) {
  model::ModelConfig config = model::find("llama3-8b")->config;
  config.max_positions = 4096;
  for (const int window : {4095, 4096}) {
    config.window = window;
    EXPECT_EQ(shape_of(config).window, window < 4096 ? window : 0);
  }
}

}  // namespace
}  // namespace lockstep::cost
