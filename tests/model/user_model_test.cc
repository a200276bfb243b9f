#include "lockstep/model/user_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/model/arch.h"
#include "lockstep/model/catalog.h"
#include "tests/support/model_named.h"

namespace lockstep::model {
namespace {

struct Read {
  std::optional<ModelConfig> model;
  config::Report report;
};

Read read(const std::string& toml) {
  Read result;
  const auto document =
      config::parse_document(toml, "model.toml", config::Format::kToml, result.report);
  EXPECT_TRUE(document.has_value());
  if (document) result.model = model_from(document->root(), result.report);
  return result;
}

constexpr const char* kLlama = R"(
name = "mine"
layers = 4
hidden = 64
heads = 4
ffn = 176
vocab = 256
max_positions = 128
)";

TEST(UserModel, TakesSizesAndDerivesTheRest) {
  const Read mine = read(kLlama);
  ASSERT_TRUE(mine.model) << mine.report.text("model.toml", false);
  EXPECT_EQ(mine.model->family, Family::kLlama);
  EXPECT_EQ(mine.model->kv_heads, 4);
  EXPECT_EQ(mine.model->head_dim, 16);
  EXPECT_EQ(mine.model->name, "mine");
  EXPECT_TRUE(describe(*mine.model).ok());
}

TEST(UserModel, FamiliesBringTheirTraits) {
  const Read gpt = read(
      "family = \"gpt2\"\nlayers = 2\nhidden = 64\nheads = 4\nvocab = 256\nmax_positions = 128\n");
  ASSERT_TRUE(gpt.model) << gpt.report.text("model.toml", false);
  ModelConfig tiny = find("gpt2-tiny")->config;
  tiny.name.clear();
  EXPECT_EQ(*gpt.model, tiny);
}

TEST(UserModel, TextReadsBackToTheSameModel) {
  for (const CatalogRow& row : catalog()) {
    ModelConfig model = row.config;
    for (const double eps : {1e-5, 1e-6 / 3}) {
      model.norm_eps = eps;
      model.init_std = 0.01;
      model.name = "quoted \"name\"";
      model.tied = !model.tied;
      const std::string text = model_text(model);
      const Read again = read(text);
      ASSERT_TRUE(again.model) << text << again.report.text("model.toml", false);
      EXPECT_EQ(*again.model, model) << text;
      const Result<ModelConfig> nameless = model_of(model_facts(model));
      ASSERT_TRUE(nameless.ok()) << text;
      model.name.clear();
      model.init_std = ModelConfig{}.init_std;
      EXPECT_EQ(*nameless, model) << text;
    }
  }
}

TEST(UserModel, FactsThatDescribeNoModelAreRefused) {
  ModelFacts facts = model_facts(find("llama-tiny")->config);
  facts.emplace_back("colour", "red");
  EXPECT_EQ(model_of(facts).error().code, Code::kUnknownKey);
  EXPECT_FALSE(model_of({{"family", "llama"}, {"layers", "two"}}).ok());
}

TEST(UserModel, StartsFromARowAndChangesIt) {
  const Read fewer = read("like = \"llama3-8b\"\nlayers = 16\n");
  ASSERT_TRUE(fewer.model) << fewer.report.text("model.toml", false);
  ModelConfig expected = find("llama3-8b")->config;
  expected.layers = 16;
  expected.name = "llama3-8b-variant";
  EXPECT_EQ(*fewer.model, expected);

  const Read wider = read("like = \"gpt2-small\"\nhidden = 960\nheads = 15\n");
  ASSERT_TRUE(wider.model) << wider.report.text("model.toml", false);
  EXPECT_EQ(wider.model->head_dim, 64);
  EXPECT_EQ(wider.model->ffn, 3840);

  const Read mtp = read("like = \"deepseek-v3\"\nmtp_layers = 1\nmoe.experts = 16\n");
  ASSERT_TRUE(mtp.model) << mtp.report.text("model.toml", false);
  EXPECT_EQ(mtp.model->moe.experts, 16);
  EXPECT_EQ(mtp.model->head_dim, 192);
}

// Every row, written out key by key, reads back to itself: no key is missing from the table and
// none is wired to the wrong member.
TEST(UserModel, WrittenOutRowsReadBackToThemselves) {
  const auto text = [](double v) { return strf("%.17g", v); };
  for (const CatalogRow& row : catalog()) {
    const ModelConfig& c = row.config;
    std::string toml = "name = \"" + c.name + "\"\n";
    const auto word = [&](const char* key, std::string_view value) {
      toml += std::string(key) + " = \"" + std::string(value) + "\"\n";
    };
    const auto number = [&](const char* key, std::int64_t value) {
      if (value != 0) toml += strf("%s = %lld\n", key, static_cast<long long>(value));
    };
    const auto real = [&](const char* key, double value) {
      toml += std::string(key) + " = " + text(value) + "\n";
    };
    const auto flag = [&](const char* key, bool value) {
      toml += std::string(key) + (value ? " = true\n" : " = false\n");
    };
    word("family", to_text(c.family));
    word("norm", to_text(c.norm));
    word("norm_place", to_text(c.norm_place));
    word("qk_norm", to_text(c.qk_norm));
    number("layers", c.layers), number("hidden", c.hidden), number("heads", c.heads);
    number("kv_heads", c.kv_heads), number("head_dim", c.head_dim), number("ffn", c.ffn);
    number("vocab", c.vocab), number("max_positions", c.max_positions);
    number("window", c.window), number("window_every", c.window_every);
    number("mtp_layers", c.mtp_layers);
    flag("tied", c.tied), flag("qkv_bias", c.qkv_bias), flag("linear_bias", c.linear_bias);
    flag("scaled_embedding", c.scaled_embedding);
    real("norm_eps", c.norm_eps), real("rope_theta", c.rope_theta), real("init_std", c.init_std);
    real("attention_softcap", c.attention_softcap), real("logit_softcap", c.logit_softcap);
    real("query_scale_dim", c.query_scale_dim);
    if (c.rope_scaling.factor != 1.0) {
      word("rope_scaling.rope_type", "llama3");
      real("rope_scaling.factor", c.rope_scaling.factor);
      real("rope_scaling.low_freq_factor", c.rope_scaling.low_freq);
      real("rope_scaling.high_freq_factor", c.rope_scaling.high_freq);
      number("rope_scaling.original_max_position_embeddings", c.rope_scaling.original_positions);
    }
    number("moe.experts", c.moe.experts), number("moe.top_k", c.moe.top_k);
    number("moe.expert_ffn", c.moe.expert_ffn), number("moe.shared_ffn", c.moe.shared_ffn);
    number("moe.dense_layers", c.moe.dense_layers);
    flag("moe.shared_gate", c.moe.shared_gate), flag("moe.router_bias", c.moe.router_bias);
    flag("moe.norm_topk_prob", c.moe.norm_topk_prob);
    word("moe.score", to_text(c.moe.score)), real("moe.routed_scale", c.moe.routed_scale);
    number("moe.groups", c.moe.groups), number("moe.top_groups", c.moe.top_groups);
    number("mla.q_rank", c.mla.q_rank), number("mla.kv_rank", c.mla.kv_rank);
    number("mla.nope_dim", c.mla.nope_dim), number("mla.rope_dim", c.mla.rope_dim);
    number("mla.v_dim", c.mla.v_dim);
    const Read back = read(toml);
    ASSERT_TRUE(back.model) << back.report.text(c.name, false);
    EXPECT_EQ(*back.model, c) << toml;
  }
}

TEST(UserModel, ReportsEveryMistakeAtOnce) {
  const Read wrong = read(std::string(kLlama) + "hiden = 3\nnorm = \"batchnorm\"\ntied = 3\n");
  EXPECT_FALSE(wrong.model);
  EXPECT_EQ(wrong.report.num_errors(), 3);
  const Read odd = read(std::string(kLlama) + "kv_heads = 3\n");
  EXPECT_FALSE(odd.model);
  ASSERT_EQ(odd.report.num_errors(), 1);
  EXPECT_EQ(odd.report.diagnostics()[0].code, Code::kBadModel);
  EXPECT_EQ(odd.report.diagnostics()[0].primary.span.line, 9);
  ASSERT_EQ(odd.report.diagnostics()[0].secondary.size(), 1u);
  EXPECT_EQ(odd.report.diagnostics()[0].secondary[0].span.line, 5);
}

TEST(UserModel, MissingSizesAreNamed) {
  const Read bare = read("hidden = 64\nheads = 4\n");
  EXPECT_FALSE(bare.model);
  std::vector<std::string> messages;
  for (const config::Diagnostic& d : bare.report.diagnostics()) {
    EXPECT_EQ(d.code, Code::kMissingKey);
    messages.push_back(d.message);
  }
  EXPECT_EQ(messages,
            (std::vector<std::string>{"`layers` is missing", "`ffn` is missing",
                                      "`vocab` is missing", "`max_positions` is missing"}));
}

TEST(UserModel, ForeignNamesAreRecognized) {
  const Read foreign = read(std::string(kLlama) + "num_key_value_heads = 2\n");
  EXPECT_FALSE(foreign.model);
  EXPECT_NE(foreign.report.text("model.toml", false).find("kv_heads"), std::string::npos);
}

// The table as it stands in Llama 3.2's config.json.
TEST(UserModel, TakesTheRopeScalingOfHuggingFaceAsItIs) {
  config::Report report;
  const auto document = config::parse_document(
      R"({"layers": 4, "hidden": 64, "heads": 4, "ffn": 176, "vocab": 256, "max_positions": 128,
          "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.5, "low_freq_factor": 1.5,
                           "original_max_position_embeddings": 64, "rope_type": "llama3"}})",
      "config.json", config::Format::kJson, report);
  ASSERT_TRUE(document);
  const auto model = model_from(document->root(), report);
  ASSERT_TRUE(model) << report.text("config.json", false);
  EXPECT_EQ(model->rope_scaling, (RopeScaling{32.0, 1.5, 4.5, 64}));
}

TEST(UserModel, OtherRopeScalingsAreRefusedByName) {
  const auto errors = [](const std::string& table) {
    const Read wrong = read(std::string(kLlama) + "[rope_scaling]\n" + table);
    EXPECT_FALSE(wrong.model) << table;
    return wrong.report.text("model.toml", false);
  };
  for (const char* type : {"yarn", "linear", "dynamic", "longrope", "default", "unheard-of"}) {
    const std::string text = errors(strf("rope_type = \"%s\"\nfactor = 8.0\n", type));
    EXPECT_NE(text.find(type), std::string::npos) << text;
  }
  EXPECT_NE(errors("rope_type = \"llama3\"\n").find("no factor above 1"), std::string::npos);
  EXPECT_NE(errors("high_freq_factor = 4.0\n").find("no factor above 1"), std::string::npos);
  EXPECT_NE(errors("type = \"llama3\"\n").find("`type`"), std::string::npos);
  EXPECT_NE(errors("factor = 8.0\n").find("original_max_position_embeddings"), std::string::npos);
}

TEST(UserModel, AFactorOfOneTakesTheScalingOfItsBaseAway) {
  const Read plain = read("like = \"llama3.1-8b\"\nrope_scaling.factor = 1\n");
  ASSERT_TRUE(plain.model) << plain.report.text("model.toml", false);
  EXPECT_EQ(plain.model->rope_scaling, RopeScaling{});
  const Read more = read("like = \"llama3.1-8b\"\nrope_scaling.factor = 16\n");
  ASSERT_TRUE(more.model) << more.report.text("model.toml", false);
  EXPECT_EQ(more.model->rope_scaling, (RopeScaling{16.0, 1.0, 4.0, 8192}));
}

TEST(UserModel, UnknownBaseIsPlacedAndAnswered) {
  const Read unknown = read("like = \"lama3-8b\"\n");
  EXPECT_FALSE(unknown.model);
  ASSERT_EQ(unknown.report.num_errors(), 1);
  EXPECT_EQ(unknown.report.diagnostics()[0].code, Code::kUnknownModel);
  EXPECT_EQ(unknown.report.diagnostics()[0].primary.span.line, 1);
}

TEST(ModelNamed, TakesRowsAndFiles) {
  EXPECT_EQ(model_named("llama3-8b")->hidden, 4096);
  EXPECT_EQ(model_named("no-such").error().code, Code::kUnknownModel);
  EXPECT_EQ(model_named("/no/such/file.toml").error().code, Code::kFileUnreadable);

  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / "lockstep_shrunk.toml";
  std::ofstream(path) << "like = \"mixtral-8x7b\"\nlayers = 2\n";
  const Result<ModelConfig> shrunk = model_named(path.string());
  ASSERT_TRUE(shrunk.ok()) << shrunk.error().message;
  EXPECT_EQ(shrunk->name, "lockstep_shrunk");
  EXPECT_EQ(shrunk->layers, 2);
  std::filesystem::remove(path);

  const std::string bare = testing::TempDir() + "/lockstep_model_without_ending";
  std::ofstream(bare) << "like = \"mixtral-8x7b\"\nlayers = 2\n";
  EXPECT_EQ(model_named(bare)->layers, 2);
  std::filesystem::remove(bare);
  EXPECT_EQ(model_named(testing::TempDir()).error().code, Code::kFileUnreadable);
}

}  // namespace
}  // namespace lockstep::model
