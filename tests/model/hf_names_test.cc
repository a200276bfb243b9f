#include "lockstep/model/hf_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "lockstep/base/units.h"
#include "lockstep/model/catalog.h"
#include "tests/support/golden.h"

namespace lockstep::model {
namespace {

std::string listing(const Model& model) {
  std::string text;
  for_each_hf_tensor(model, [&](const HfTensor& tensor) {
    text += tensor.name;
    for (const std::int64_t size : tensor.shape)
      text += strf(" %lld", static_cast<long long>(size));
    text += "\n";
  });
  return text;
}

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t all = 1;
  for (const std::int64_t size : shape) all *= size;
  return all;
}

// One small model per checkpoint dialect.
std::map<std::string, ModelConfig> dialects() {
  std::map<std::string, ModelConfig> all;
  for (const CatalogRow& row : catalog()) {
    ModelConfig small = row.config;
    small.layers = 2;
    small.moe.dense_layers = std::min<std::int64_t>(small.moe.dense_layers, 1);
    if (small.moe.experts > 0) small.moe.experts = small.moe.top_k + 1;
    small.moe.groups = small.moe.top_groups = 1;
    all.emplace(hf_model_type(small), small);
  }
  return all;
}

// The names and shapes were compared with the state_dict of transformers 5.15 on the meta device
// for every row of the catalogue, experts taken apart; the files keep one small model of each kind.
TEST(HfNames, MatchTheRecordedCheckpoints) {
  const auto all = dialects();
  EXPECT_EQ(all.size(), 13u);
  for (const auto& [type, config] : all)
    EXPECT_TRUE(support::matches_golden("arch/hf_" + type + ".txt", listing(*describe(config))));
}

TEST(HfNames, PiecesFillEveryTensorExactly) {
  for (const CatalogRow& row : catalog()) {
    const Model model = *describe(row.config);
    std::int64_t stored = 0;
    std::set<std::string> names;
    for_each_hf_tensor(model, [&](const HfTensor& tensor) {
      EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
      EXPECT_EQ(tensor.name.find('{'), std::string::npos) << tensor.name;
      stored += product(tensor.shape);
      std::int64_t rows = 0;
      for (const HfPiece& piece : tensor.pieces) {
        EXPECT_EQ(piece.begin, rows) << tensor.name;
        EXPECT_EQ(piece.param->experts > 0, tensor.expert >= 0) << tensor.name;
        rows += piece.rows;
      }
      EXPECT_EQ(tensor.transposed ? tensor.shape.back() : tensor.shape.front(), rows)
          << tensor.name;
    });
    EXPECT_EQ(stored, count(model).total) << row.config.name;
  }
}

TEST(HfNames, FusedProjectionOfGpt2IsThreePieces) {
  const Model model = *describe(find("gpt2-tiny")->config);
  int fused = 0;
  for_each_hf_tensor(model, [&](const HfTensor& tensor) {
    if (tensor.name.find("c_attn") == std::string::npos) return;
    ++fused;
    ASSERT_EQ(tensor.pieces.size(), 3u);
    const bool is_weight = tensor.name.ends_with(".weight");
    EXPECT_EQ(tensor.transposed, is_weight);
    EXPECT_EQ(tensor.shape,
              is_weight ? (std::vector<std::int64_t>{64, 192}) : (std::vector<std::int64_t>{192}));
    const char* order[] = {".q.", ".k.", ".v."};
    for (int i = 0; i < 3; ++i)
      EXPECT_NE(tensor.pieces[i].param->name.find(order[i]), std::string::npos);
  });
  EXPECT_EQ(fused, 4);
}

TEST(HfNames, PredictionLayersFollowTheLastBlock) {
  ModelConfig config = find("deepseek-tiny")->config;
  config.mtp_layers = 1;
  const std::string text = listing(*describe(config));
  for (const char* name :
       {"model.layers.3.enorm.weight 64\n", "model.layers.3.hnorm.weight 64\n",
        "model.layers.3.eh_proj.weight 64 128\n", "model.layers.3.shared_head.norm.weight 64\n",
        "model.layers.3.mlp.experts.7.down_proj.weight 64 32\n"})
    EXPECT_NE(text.find(name), std::string::npos) << name;
}

}  // namespace
}  // namespace lockstep::model
