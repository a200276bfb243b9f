#include "lockstep/model/arch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "lockstep/model/catalog.h"

namespace lockstep::model {
namespace {

using mesh::Axis;

class EveryModel : public testing::TestWithParam<std::string> {
 protected:
  const Model model_ = *describe(find(GetParam())->config);
};

std::vector<std::string> names_in_catalog() {
  std::vector<std::string> names;
  for (const CatalogRow& row : catalog()) names.push_back(row.config.name);
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& row) {
  std::string name = row.param;
  for (char& letter : name)
    if (letter == '-' || letter == '.') letter = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Catalog, EveryModel, testing::ValuesIn(names_in_catalog()), test_name);

// Two independent lists must agree: every two-dimensional weight but the embeddings takes part in
// exactly one matrix product, and nothing else does.
TEST_P(EveryModel, MatrixProductsUseEveryWeightOnce) {
  for (const Unit& unit : model_.distinct) {
    std::int64_t in_weights = 0;
    for (const Param& param : unit.params)
      if (param.shape.size() >= 2 && param.role != Role::kEmbedding) in_weights += param.numel();
    std::int64_t in_products = 0;
    for (const Matmul& product : unit.matmuls) {
      // A prediction layer runs the head's projection, which it does not hold.
      if (unit.kind == UnitKind::kMtp && product.name == "head") continue;
      in_products += product.k * product.n * product.count;
    }
    EXPECT_EQ(in_weights, in_products) << to_text(unit.kind);
  }
}

TEST_P(EveryModel, StandsAsEmbedBlocksHead) {
  const std::int64_t layers = model_.config.layers;
  ASSERT_EQ(model_.num_units(), layers + 2);
  EXPECT_EQ(model_.unit(0).kind, UnitKind::kEmbed);
  EXPECT_EQ(model_.unit(model_.num_units() - 1).kind, UnitKind::kHead);
  for (int i = 1; i <= layers; ++i) EXPECT_EQ(model_.unit(i).kind, UnitKind::kBlock) << i;
  EXPECT_LE(model_.distinct.size(), 4u) << "alike units must be stored once";
  for (const Unit& a : model_.distinct)
    for (const Unit& b : model_.distinct) EXPECT_EQ(&a == &b, a == b);
}

TEST_P(EveryModel, CountsSplitByAxisAndByUnit) {
  const ParamCount all = count(model_);
  EXPECT_EQ(all.tensor + all.expert + all.replicated, all.total);
  ParamCount by_unit;
  for (int i = 0; i < model_.num_units(); ++i) by_unit += count(model_.unit(i));
  EXPECT_EQ(by_unit, all);
}

TEST_P(EveryModel, ExpertsAreWhatTheExpertAxesDivide) {
  const ModelConfig& c = model_.config;
  const std::int64_t moe_layers = c.moe.experts > 0 ? c.layers - c.moe.dense_layers : 0;
  EXPECT_EQ(count(model_).expert, moe_layers * c.moe.experts * 3 * c.hidden * c.moe.expert_ffn);
}

TEST_P(EveryModel, NamesAreUniqueAndShardsFitTheirShapes) {
  std::set<std::string> names;
  for (int i = 0; i < model_.num_units(); ++i)
    for (const Param& param : model_.unit(i).params) {
      const std::string name = name_at(param.name, Model::layer(i));
      EXPECT_TRUE(names.insert(name).second) << name;
      EXPECT_EQ(name.find('{'), std::string::npos) << name;
    }
  for (const Unit& unit : model_.distinct)
    for (const Param& param : unit.params) {
      EXPECT_GT(param.numel(), 0) << param.name;
      for (const ShardedDim& cut : param.sharded) {
        ASSERT_LT(cut.dim, static_cast<int>(param.shape.size())) << param.name;
        EXPECT_EQ(param.shape[cut.dim] % cut.grain, 0) << param.name;
        EXPECT_EQ(cut.axis == Axis::kTensor, param.experts == 0) << param.name;
      }
      if (param.experts > 0) {
        EXPECT_EQ(param.shape[0], param.experts) << param.name;
      }
    }
}

// Megatron's rule: within attention and MLP the output dimension is cut on the way in, the input
// dimension on the way out, and a bias goes with an output that was cut.
TEST_P(EveryModel, ColumnThenRow) {
  for (const Unit& unit : model_.distinct)
    for (const Param& param : unit.params) {
      const bool is_bias = param.name.ends_with(".bias");
      const auto is = [&](const char* part) { return param.name.find(part) != std::string::npos; };
      if (param.experts > 0 || param.role == Role::kNorm || param.role == Role::kRouter) continue;
      if (is(".q.") || is(".k.") || is(".v.") || is(".gate.") || is(".up.") || is("_b.")) {
        ASSERT_EQ(param.sharded.size(), 1u) << param.name;
        EXPECT_EQ(param.sharded[0].dim, 0) << param.name;
      } else if (is(".o.") || is(".down.")) {
        EXPECT_EQ(param.sharded.size(), is_bias ? 0u : 1u) << param.name;
        if (!is_bias) {
          EXPECT_EQ(param.sharded[0].dim, 1) << param.name;
        }
      }
    }
}

TEST_P(EveryModel, InitialValuesAndDecayFollowTheRoles) {
  const double std = model_.config.init_std;
  const double small = std / std::sqrt(2.0 * static_cast<double>(model_.config.layers));
  for (const Unit& unit : model_.distinct)
    for (const Param& param : unit.params) {
      EXPECT_EQ(param.decays, param.shape.size() >= 2) << param.name;
      EXPECT_EQ(param.trained, !param.name.ends_with("router.bias")) << param.name;
      if (param.shape.size() < 2) {
        const bool gain = param.name.ends_with(".weight");
        const bool ones = gain && model_.config.norm != NormKind::kRmsNormPlusOne;
        EXPECT_EQ(param.init.kind, ones ? InitKind::kOnes : InitKind::kZeros) << param.name;
        continue;
      }
      const bool into_residual = param.name.find(".o.weight") != std::string::npos ||
                                 param.name.find("down.weight") != std::string::npos;
      EXPECT_EQ(param.init, (Init{InitKind::kNormal, into_residual ? small : std})) << param.name;
    }
}

// The formulas of the Llama and MLA layer as one writes them on paper.
TEST(Describe, LlamaAndLatentLayersHaveTheirClosedForms) {
  const ModelConfig l = find("llama3-70b")->config;
  const std::int64_t h = l.hidden, q = l.heads * l.head_dim, kv = l.kv_heads * l.head_dim;
  EXPECT_EQ(count(describe(l)->unit(1)).total, h * (q + 2 * kv) + q * h + 3 * h * l.ffn + 2 * h);

  const ModelConfig d = find("deepseek-v3")->config;
  const Mla& m = d.mla;
  const std::int64_t attention =
      d.hidden * m.q_rank + m.q_rank + m.q_rank * d.heads * (m.nope_dim + m.rope_dim) +
      d.hidden * (m.kv_rank + m.rope_dim) + m.kv_rank +
      m.kv_rank * d.heads * (m.nope_dim + m.v_dim) + d.heads * m.v_dim * d.hidden;
  const Model v3 = *describe(d);
  EXPECT_EQ(count(v3.unit(1)).total, attention + 2 * d.hidden + 3 * d.hidden * d.ffn);
  EXPECT_EQ(count(v3.unit(4)).total, attention + 2 * d.hidden + d.hidden * 256 + 256 +
                                         257 * 3 * d.hidden * d.moe.expert_ffn);
  EXPECT_EQ(v3.order[3], v3.order[1]);
  EXPECT_NE(v3.order[4], v3.order[1]);
}

TEST(Describe, Gemma2AlternatesLocalAndGlobalLayers) {
  const Model model = *describe(find("gemma2-2b")->config);
  for (int i = 0; i < 26; ++i)
    EXPECT_EQ(model.unit(1 + i).attention->window, i % 2 == 0 ? 4096 : 0) << i;
}

TEST(Describe, TiedHeadsAreHeldButNotCounted) {
  const Model model = *describe(find("llama3.2-1b")->config);
  const Unit& head = model.unit(model.num_units() - 1);
  EXPECT_EQ(count(head).total, 2048);
  EXPECT_TRUE(head.params.back().tied);
  EXPECT_EQ(head.params.back().numel(), 128256 * 2048);
}

// Cost must follow the number of different units, not of layers and experts. It takes 6 and 19 us;
// the limit leaves room for sanitizers and busy machines, and none for a list of 44,544 experts.
TEST(Describe, CostsMicrosecondsForTheLargestModels) {
  for (const char* name : {"llama3-405b", "deepseek-v3"}) {
    const ModelConfig config = find(name)->config;
    double best_us = 1e9;
    for (int i = 0; i < 50; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const ParamCount counted = count(*describe(config));
      const auto stop = std::chrono::steady_clock::now();
      EXPECT_GT(counted.total, 0);
      best_us = std::min(best_us, std::chrono::duration<double, std::micro>(stop - start).count());
    }
    RecordProperty(name, std::to_string(best_us));
    EXPECT_LT(best_us, 1000.0) << name;
  }
}

}  // namespace
}  // namespace lockstep::model
