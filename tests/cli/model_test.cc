#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/catalog.h"
#include "tests/cli/answer.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

Answer run_model(const std::vector<std::string>& arguments, int width = 0) {
  return answer(model_verb(), arguments, width);
}

TEST(ModelVerb, ShowsACard) {
  for (const char* name : {"llama3-405b", "deepseek-v3"}) {
    const Answer ran = run_model({"model", name});
    EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
    EXPECT_TRUE(support::matches_golden("cli/model_" + std::string(name) + ".txt", ran.out));
  }
}

TEST(ModelVerb, ShowsPassesOfAUnitPartByPart) {
  const Answer ran = run_model({"model", "llama3-8b", "--unit", "block", "--tp", "2", "--sp"});
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  EXPECT_TRUE(support::matches_golden("cli/model_unit_block.txt", ran.out));
  for (const char* unit : {"embed", "head"})
    EXPECT_EQ(run_model({"model", "gpt2-tiny", "--unit", unit}).code, ExitCode::kOk);
  const Answer mixture = run_model({"model", "mixtral-8x7b", "--unit", "block", "--tp", "2"});
  EXPECT_NE(mixture.out.find("expert_linear"), std::string::npos) << mixture.err;
  // Whole experts take a tensor rank's own rows: nothing is gathered for them, nothing summed.
  const Answer whole =
      run_model({"model", "mixtral-8x7b", "--unit", "block", "--tp", "2", "--sp", "--etp", "1"});
  EXPECT_NE(whole.out.find("take_rows       mlp_normed, places"), std::string::npos) << whole.out;
  for (const auto& [arguments, words] :
       {std::pair{std::vector<std::string>{"model", "llama3-8b", "--tp", "2"},
                  "no --unit is given"},
        {{"model", "llama3-8b", "--unit", "block", "--tp", "3"},
         "the nearest tp that does: 2 or 4"},
        {{"model", "mixtral-8x7b", "--unit", "block", "--tp", "2", "--etp", "1"},
         "without sequence parallelism"},
        {{"model", "deepseek-v3", "--unit", "block"}, "family is deepseek"}}) {
    const Answer refused = run_model(arguments);
    EXPECT_EQ(refused.code, ExitCode::kUsage);
    EXPECT_NE(refused.err.find(words), std::string::npos) << refused.err;
  }
}

// ZeRO, figure 1 (arXiv 1910.02054): 120, 31.4, 16.6 and 1.9 GB for 7.5 billion parameters on 64.
TEST(ModelVerb, ShowsWhatZeroLeavesOnARank) {
  const std::string file = testing::TempDir() + "lockstep_model_7b5.toml";
  std::ofstream(file) << "family = \"gpt2\"\nlayers = 36\nhidden = 4096\nheads = 32\n"
                         "vocab = 59065\nmax_positions = 2048\n";
  const std::string told = run_model({"model", file, "--dp", "64"}).out;
  for (const char* total : {" 120.0 GB ", " 31.41 GB ", " 16.64 GB ", " 1.875 GB "})
    EXPECT_NE(told.find(total), std::string::npos) << told;
  std::filesystem::remove(file);

  const Answer ran =
      run_model({"model", "llama3-8b", "--tp", "8", "--pp", "4", "--dp", "2", "--json"});
  const Result<Json> json = Json::parse(ran.out);
  ASSERT_TRUE(json.ok()) << ran.out << ran.err;
  EXPECT_EQ(json->find("stages")->items().size(), 8u);
  // Norms are on every tensor rank; the rest is divided.
  const model::ParamCount all = count(*describe(model::find("llama3-8b")->config));
  EXPECT_DOUBLE_EQ(json->find("rank_parameters")->as_real(),
                   (static_cast<double>(all.tensor) / 8 + static_cast<double>(all.replicated)) / 4);
  EXPECT_NE(run_model({"model", "llama2-7b", "--dp", "1", "--dtype", "f32"}).out.find("53.91 GB"),
            std::string::npos);
  EXPECT_EQ(run_model({"model", "deepseek-v3", "--dp", "8"}).code, ExitCode::kOk);
}

TEST(ModelVerb, RefusesStatesOfWhatCannotBeCut) {
  for (const auto& [arguments, words] :
       {std::pair{std::vector<std::string>{"model", "llama2-7b", "--dp", "8", "--tp", "3"},
                  "does not divide the 32 heads"},
        {{"model", "llama2-7b", "--dp", "8", "--pp", "33"}, "pp = 33 needs 33 layers"},
        {{"model", "llama2-7b", "--pp", "2"}, "there is no --dp"},
        {{"model", "llama2-7b", "--svg", "x.svg"}, "there is no --dp"},
        {{"model", "llama2-7b", "--dp", "8", "--unit", "block"}, "--unit says nothing about"},
        {{"model", "llama2-7b", "--dp", "8", "--seq", "64"}, "--seq says nothing about"},
        {{"model", "llama2-7b", "--dp", "8", "--cp", "2"}, "no --unit is given"}}) {
    const Answer refused = run_model(arguments);
    EXPECT_EQ(refused.code, ExitCode::kUsage);
    EXPECT_NE(refused.err.find(words), std::string::npos) << refused.err;
  }
}

TEST(ModelVerb, FitsEightyColumns) {
  EXPECT_NE(run_model({"model", "--list"}).out.find("arXiv 2005.14165"), std::string::npos);
  std::string all = run_model({"model", "--list"}, 80).out;
  for (const model::CatalogRow& row : model::catalog()) {
    EXPECT_NE(all.find("\n" + row.config.name + " "), std::string::npos) << row.config.name;
    all += run_model({"model", row.config.name}).out;
  }
  std::istringstream lines(all);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST(ModelVerb, JsonHoldsBothConventionsAtTheAskedLength) {
  const Answer ran = run_model({"model", "llama3-405b", "--seq", "131072", "--json"});
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  const auto json = Json::parse(ran.out);
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ(json->find("schema")->as_text(), "lockstep.model/1");
  EXPECT_EQ(json->find("parameters")->as_int(), 405'853'388'800);
  EXPECT_EQ(json->find("active_parameters")->as_int(), 405'853'388'800);
  EXPECT_EQ(json->find("seq")->as_int(), 131072);
  EXPECT_NEAR(json->find("flops_per_token")->as_real(), 4.05e12, 0.005e12);
  EXPECT_NEAR(json->find("flops_per_token_full_attention")->as_real(), 5.67e12, 0.005e12);
  EXPECT_EQ(json->find("state_bytes_f32_grads")->as_int(), 18 * 405'853'388'800);
  EXPECT_EQ(json->find("shape")->find("kv_heads")->as_int(), 8);
  std::int64_t sum = 0;
  for (const Json& unit : json->find("units")->items())
    sum += unit.find("units")->as_int() * unit.find("parameters_each")->as_int();
  EXPECT_EQ(sum, 405'853'388'800);
}

TEST(ModelVerb, DefaultLengthIsTheModelsButAtMost8192) {
  const auto seq = [](const char* name) {
    return Json::parse(run_model({"model", name, "--json"}).out)->find("seq")->as_int();
  };
  EXPECT_EQ(seq("gpt2"), 1024);
  EXPECT_EQ(seq("llama3-405b"), 8192);
}

TEST(ModelVerb, SaysWhenTheLengthIsBeyondTheModel) {
  EXPECT_NE(run_model({"model", "gpt2", "--seq", "4096"}).out.find("made for 1,024"),
            std::string::npos);
  EXPECT_EQ(run_model({"model", "gpt2", "--seq", "1024"}).out.find("made for"), std::string::npos);
}

TEST(ModelVerb, ReadsAFileAndPointsAtItsMistakes) {
  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / "lockstep_model_verb.toml";
  std::ofstream(path) << "like = \"llama3-8b\"\nlayers = 2\n";
  const Answer good = run_model({"model", path.string()});
  EXPECT_EQ(good.code, ExitCode::kOk) << good.err;
  EXPECT_TRUE(good.out.starts_with("lockstep_model_verb: ")) << good.out;
  std::ofstream(path) << "like = \"llama3-8b\"\nkv_heads = 5\n";
  const Answer bad = run_model({"model", path.string()});
  EXPECT_EQ(bad.code, ExitCode::kUsage);
  EXPECT_NE(bad.err.find(":2:"), std::string::npos) << bad.err;
  EXPECT_NE(bad.err.find("LS0302"), std::string::npos) << bad.err;
  std::filesystem::remove(path);
}

TEST(ModelVerb, MistakesAreUsageErrorsWithHelp) {
  const Answer near = run_model({"model", "lama3-8b"});
  EXPECT_EQ(near.code, ExitCode::kUsage);
  EXPECT_NE(near.err.find("LS0301"), std::string::npos) << near.err;
  EXPECT_NE(near.err.find("llama3-8b"), std::string::npos) << near.err;
  EXPECT_TRUE(near.out.empty());
  EXPECT_EQ(run_model({"model"}).code, ExitCode::kUsage);
  EXPECT_EQ(run_model({"model", "gpt2", "--seq", "0"}).code, ExitCode::kUsage);
}

TEST(ModelVerb, ADirectoryIsNoModel) {
  EXPECT_EQ(run_model({"model", testing::TempDir()}).code, ExitCode::kEnvironment);
}

TEST(ModelVerb, ANameAndAListAreRefused) {
  EXPECT_EQ(run_model({"model", "gpt2", "--list"}).code, ExitCode::kUsage);
  EXPECT_EQ(run_model({"model", "--fields", "gpt2"}).code, ExitCode::kUsage);
}

TEST(ModelVerb, ListsTheKeysOfAFile) {
  const Answer ran = run_model({"model", "--fields"});
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  EXPECT_NE(ran.out.find("layers  (required unless `like` is given)"), std::string::npos);
  for (const char* key : {"like", "moe.experts", "mla.kv_rank"})
    EXPECT_NE(ran.out.find(key), std::string::npos) << key;
  EXPECT_TRUE(Json::parse(run_model({"model", "--fields", "--json"}).out).ok());
  EXPECT_TRUE(Json::parse(run_model({"model", "--list", "--json"}).out).ok());
}

}  // namespace
}  // namespace lockstep::cli
