#include "lockstep/model/catalog.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "lockstep/model/arch.h"

namespace lockstep::model {
namespace {

Model described(const std::string& name) {
  const Result<CatalogRow> row = find(name);
  EXPECT_TRUE(row.ok()) << name;
  const Result<Model> model = describe(row->config);
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return *model;
}

// Published sizes: what the models' own checkpoint files add up to, bytes over bytes per element.
struct Published {
  const char* name;
  std::int64_t parameters;
};

constexpr Published kPublished[] = {
    {"gpt2-small", 124'439'808},          {"gpt2-medium", 354'823'168},
    {"gpt2-large", 774'030'080},          {"gpt2-xl", 1'557'611'200},
    {"llama2-7b", 6'738'415'616},         {"llama2-13b", 13'015'864'320},
    {"llama2-70b", 68'976'648'192},       {"llama3-8b", 8'030'261'248},
    {"llama3-70b", 70'553'706'496},       {"llama3.1-8b", 8'030'261'248},
    {"llama3.1-70b", 70'553'706'496},     {"llama3-405b", 405'853'388'800},
    {"llama3.2-1b", 1'235'814'400},       {"llama3.2-3b", 3'212'749'824},
    {"mistral-7b", 7'241'732'096},        {"yi-6b", 6'061'035'520},
    {"yi-34b", 34'388'917'248},           {"qwen2-0.5b", 494'032'768},
    {"qwen2-1.5b", 1'543'714'304},        {"qwen2-7b", 7'615'616'512},
    {"qwen2-72b", 72'706'203'648},        {"qwen2.5-3b", 3'085'938'688},
    {"qwen2.5-14b", 14'770'033'664},      {"qwen2.5-32b", 32'763'876'352},
    {"qwen3-0.6b", 596'049'920},          {"qwen3-1.7b", 1'720'574'976},
    {"qwen3-4b", 4'022'468'096},          {"qwen3-8b", 8'190'735'360},
    {"qwen3-14b", 14'768'307'200},        {"qwen3-32b", 32'762'123'264},
    {"olmo-7b", 6'888'095'744},           {"olmo2-7b", 7'298'617'344},
    {"olmo2-13b", 13'716'198'400},        {"gemma2-2b", 2'614'341'888},
    {"gemma2-9b", 9'241'705'984},         {"gemma2-27b", 27'227'128'320},
    {"mixtral-8x7b", 46'702'792'704},     {"mixtral-8x22b", 140'620'634'112},
    {"qwen3-30b-a3b", 30'532'122'624},    {"qwen3-235b-a22b", 235'093'634'560},
    {"deepseek-v2-lite", 15'706'484'224}, {"deepseek-v2", 235'741'434'880},
    {"deepseek-v3", 671'026'419'200},
};

TEST(Catalog, HasThePublishedNumberOfParametersInEveryRow) {
  for (const Published& known : kPublished)
    EXPECT_EQ(count(described(known.name)).total, known.parameters) << known.name;
}

TEST(Catalog, EveryRowIsDescribedCheckedAndCited) {
  // Against its closed form in flops_test, and its rounded size below.
  std::set<std::string> published = {"gpt3-175b", "qwen2-57b-a14b"};
  for (const Published& known : kPublished) published.insert(known.name);
  std::set<std::string> names;
  for (const CatalogRow& row : catalog()) {
    EXPECT_TRUE(problems(row.config).empty()) << row.config.name;
    EXPECT_FALSE(row.source.empty()) << row.config.name;
    EXPECT_TRUE(names.insert(row.config.name).second) << row.config.name << " twice";
    for (const std::string& other : row.also)
      EXPECT_TRUE(names.insert(other).second) << other << " twice";
    if (!row.config.name.ends_with("-tiny")) {
      EXPECT_TRUE(published.contains(row.config.name)) << row.config.name << " has no known size";
    }
  }
}

// Active sizes: Mixtral 12.9B (arXiv 2401.04088), DeepSeek-V3 37B and V2 21B by their reports,
// Qwen3 3.3B and 22B by theirs. The first two are exact: total minus the experts not met.
TEST(Catalog, CountsTheParametersATokenMeets) {
  EXPECT_EQ(count(described("mixtral-8x7b")).active, 12'879'925'248);
  const auto billions = [](const std::string& name) {
    return static_cast<double>(count(described(name)).active) / 1e9;
  };
  EXPECT_NEAR(billions("deepseek-v3"), 37.55, 0.005);
  EXPECT_NEAR(billions("deepseek-v2"), 21.4, 0.1);
  EXPECT_NEAR(billions("mixtral-8x22b"), 39.1, 0.1);
  EXPECT_NEAR(billions("qwen3-30b-a3b"), 3.3, 0.1);
  EXPECT_NEAR(billions("qwen3-235b-a22b"), 22.2, 0.1);
  EXPECT_NEAR(billions("qwen2-57b-a14b"), 14.2, 0.1);
  EXPECT_NEAR(static_cast<double>(count(described("qwen2-57b-a14b")).total) / 1e9, 57.4, 0.05);
  for (const CatalogRow& row : catalog()) {
    const ParamCount counted = count(*describe(row.config));
    if (row.config.moe.experts == 0) {
      EXPECT_EQ(counted.active, counted.total) << row.config.name;
    }
  }
}

// The checkpoint holds the prediction layer with its own copies of embedding and head: in bf16
// 684,489,845,504 elements.
TEST(Catalog, PredictionLayerOfDeepSeekAddsItsPublishedSize) {
  ModelConfig config = find("deepseek-v3")->config;
  config.mtp_layers = 1;
  const Model model = *describe(config);
  EXPECT_EQ(count(model).total + 2 * config.vocab * config.hidden, 684'489'845'504);
  EXPECT_EQ(count(model).total - count(model.unit(62)).total, 671'026'419'200);
  EXPECT_EQ(model.unit(62).kind, UnitKind::kMtp);
  EXPECT_EQ(Model::layer(62), 61);
}

TEST(Catalog, FindsNamesHoweverTheyAreWritten) {
  EXPECT_EQ(find("Llama3_405B")->config.name, "llama3-405b");
  EXPECT_EQ(find("llama3.1-405b")->config.name, "llama3-405b");
  EXPECT_EQ(find("gpt2")->config.name, "gpt2-small");
  EXPECT_EQ(find("llama3.1-8b")->config.max_positions, 131072);
  EXPECT_EQ(find("llama3-8b")->config.rope_scaling, RopeScaling{});
  for (const char* name : {"llama3.1-8b", "llama3.1-70b", "llama3.3-70b", "llama3.1-405b"})
    EXPECT_EQ(find(name)->config.rope_scaling, (RopeScaling{8.0, 1.0, 4.0, 8192})) << name;
  for (const char* name : {"llama3.2-1b", "llama3.2-3b"})
    EXPECT_EQ(find(name)->config.rope_scaling, (RopeScaling{32.0, 1.0, 4.0, 8192})) << name;
  EXPECT_EQ(find("llama3-8b")->config.max_positions, 8192);
}

TEST(Catalog, UnknownNamesAreAnsweredWithNearOnes) {
  const auto help = [](const char* name) {
    const Result<CatalogRow> row = find(name);
    EXPECT_FALSE(row.ok()) << name;
    EXPECT_EQ(row.error().code, Code::kUnknownModel);
    EXPECT_NE(row.error().message.find(name), std::string::npos) << row.error().message;
    return row.error().help;
  };
  EXPECT_NE(help("lama3-405b").find("`llama3-405b`"), std::string::npos);
  EXPECT_NE(help("deepseek-v4").find("`deepseek-v3`"), std::string::npos);
  EXPECT_NE(help("mixtral-900x").find("`mixtral-8x7b`"), std::string::npos);
  EXPECT_NE(help("lama3").find("`llama3-8b`"), std::string::npos);
  EXPECT_NE(help("zzz").find("model --list"), std::string::npos);
  EXPECT_NE(help("").find("model --list"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::model
