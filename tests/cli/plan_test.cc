#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "lockstep/config/document.h"
#include "lockstep/cost/price.h"
#include "lockstep/plan/spec.h"
#include "tests/cli/answer.h"

namespace lockstep::cli {
namespace {

std::vector<std::string> with(std::vector<std::string> more) {
  std::vector<std::string> words = {"plan",  "--model", "llama3-8b",      "--cluster", "h100:64",
                                    "--seq", "8192",    "--global-batch", "512"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Answer run_plan(std::vector<std::string> more = {}, int width = 80) {
  return answer(plan_verb(), with(std::move(more)), width);
}

Json json_of(std::vector<std::string> more) {
  more.emplace_back("--json");
  const Answer ran = run_plan(std::move(more));
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  auto json = Json::parse(ran.out);
  EXPECT_TRUE(json.ok()) << ran.out;
  return *json;
}

TEST(PlanVerb, StaysInsideTheWindow) {
  for (const int width : {80, 120})
    for (const auto& more : std::vector<std::vector<std::string>>{
             {}, {"--explain", "--memory", "--tokens", "15e12", "--price", "2"}}) {
      const Answer ran = run_plan(more, width);
      EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
      std::istringstream lines(ran.out);
      for (std::string line; std::getline(lines, line);)
        EXPECT_LE(line.size(), static_cast<std::size_t>(width)) << line;
    }
}

TEST(PlanVerb, JsonRowsAreDistinctAndFit) {
  const Json json = json_of(
      {"--top", "5", "--tokens", "1e12", "--price", "2", "--explain", "--what-if", "network=2x"});
  EXPECT_EQ(json.find("schema")->as_text(), "lockstep.plan/1");
  EXPECT_GT(json.find("layouts")->as_int(), 1000);
  const auto& rows = json.find("plans")->items();
  ASSERT_EQ(rows.size(), 5U);
  double before = 0;
  for (const Json& row : rows) {
    EXPECT_TRUE(row.find("fits")->as_bool());
    EXPECT_GE(row.find("step_s")->find("total")->as_real() * 1.0021, before);
    before = row.find("step_s")->find("total")->as_real();
    for (const cost::StepTerm& term : cost::kStepTerms)
      EXPECT_NE(row.find("step_s")->find(term.name), nullptr) << term.name;
    EXPECT_GT(row.find("run")->find("days")->as_real(), 0);
    const Json& mfu = *row.find("mfu");
    EXPECT_LT(mfu.find("causal")->as_real(), mfu.find("full")->as_real());
  }
  EXPECT_FALSE(json.find("neighbours")->items().empty());
  EXPECT_EQ(json.find("what_if")->items().size(), 1U);
}

// A layout that was found costs the same when it is asked for by name.
TEST(PlanVerb, PricesTheUsersOwnLayout) {
  const Json first = json_of({"--top", "1"});
  const Json& best = first.find("plans")->items()[0];
  const Json again = json_of({"--layout", best.find("name")->as_text()});
  EXPECT_EQ(again.find("plans")->items()[0].find("step_s")->find("total")->as_real(),
            best.find("step_s")->find("total")->as_real());
  const Json mine = json_of({"--layout", "tp=8,pp=2,zero=1,schedule=interleaved,chunks=2"});
  EXPECT_EQ(mine.find("plans")->items()[0].find("layout")->find("dp")->as_int(), 4);
  const std::string ordered = "tp2 pp2 dp16 zero1 interleaved chunks2 m32 step order=tp,cp,dp,pp";
  EXPECT_EQ(json_of({"--layout", ordered}).find("plans")->items()[0].find("name")->as_text(),
            ordered);
}

// A sequence too long for one device: the way its ranks meet is in the table, in JSON, in the run file and in the
// layout's name, which is priced the same.
TEST(PlanVerb, SaysHowRanksOfASequenceMeet) {
  const std::string name = ::testing::TempDir() + "plan_verb_context.json";
  const std::vector<std::string> asked = {
      "plan",  "--model", "llama3-8b", "--cluster", "h100:64",        "--seq", "524288",
      "--out", name,      "--top",     "3",         "--global-batch", "8",     "--json"};
  const Answer ran = answer(plan_verb(), asked);
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  const Json json = *Json::parse(ran.out);
  const Json& best = json.find("plans")->items()[0];
  const std::string way = best.find("layout")->find("context")->as_text();
  EXPECT_GT(best.find("layout")->find("cp")->as_int(), 1);
  EXPECT_FALSE(best.find("runs_here")->as_bool());
  EXPECT_NE(best.find("name")->as_text().find(" context=" + way), std::string::npos);
  config::Report report;
  const auto spec = plan::read_spec(*config::load_document(name, report), report);
  ASSERT_TRUE(spec) << report.text(name, false);
  EXPECT_EQ(to_text(spec->layout.context), way);
  const auto named = [&](const std::string& layout) {
    return answer(plan_verb(), {"plan", "--model", "llama3-8b", "--cluster", "h100:64", "--seq",
                                "524288", "--global-batch", "8", "--layout", layout});
  };
  const Answer again = named(best.find("name")->as_text());
  EXPECT_NE(again.out.find("context"), std::string::npos) << again.out;
  EXPECT_NE(again.out.find(" " + way + " "), std::string::npos) << again.out;
  std::istringstream lines(answer(plan_verb(), {"plan", "--model", "llama3-405b", "--cluster",
                                                "h100:16384", "--seq", "131072", "--global-batch",
                                                "128", "--explain", "--what-if", "network=0.5x"})
                               .out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  EXPECT_NE(named("tp=8,cp=8,context=ulysses").err.find("does not divide the 32 heads"),
            std::string::npos);
  EXPECT_NE(named("tp=8,cp=8,context=a2a").err.find("`ulysses`"), std::string::npos);
  std::remove(name.c_str());
}

TEST(PlanVerb, WritesARunFile) {
  const std::string name = ::testing::TempDir() + "plan_verb_out.json";
  const Answer ran = run_plan({"-o", name});
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  config::Report report;
  const auto document = config::load_document(name, report);
  ASSERT_TRUE(document.has_value());
  const auto spec = plan::read_spec(*document, report);
  ASSERT_TRUE(spec.has_value()) << report.text(name, false);
  EXPECT_EQ(spec->world(), 64);
  // And plans from it, comparing the layout with itself.
  const Answer next = answer(plan_verb(), {"plan", name});
  EXPECT_EQ(next.code, ExitCode::kOk) << next.err;
  EXPECT_NE(next.out.find("\nyours "), std::string::npos) << next.out;
  std::remove(name.c_str());
}

// Files that a run file names lie beside it, wherever its copy is written.
TEST(PlanVerb, WritesARunFileElsewhere) {
  const std::filesystem::path dir = ::testing::TempDir() + "plan_verb_elsewhere";
  std::filesystem::create_directories(dir / "out");
  std::ofstream(dir / "own.toml") << "like = \"llama3-8b\"\nlayers = 16\n";
  std::ofstream(dir / "two.toml") << "devices = 16\n[device]\nbase = \"h100\"\n";
  std::ofstream(dir / "run.toml")
      << "[model]\nname = \"own.toml\"\n[cluster]\nname = \"two.toml\"\n"
         "[batch]\nseq = 8192\nglobal_batch = 64\n[train]\nsteps = 1\n";
  const std::string out = (dir / "out" / "plan.json").string();
  const Answer ran = answer(plan_verb(), {"plan", (dir / "run.toml").string(), "--out", out});
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  config::Report report;
  const auto spec = plan::read_spec(*config::load_document(out, report), report);
  ASSERT_TRUE(spec) << report.text(out, false);
  EXPECT_EQ(spec->model.layers, 16);
  EXPECT_EQ(spec->world(), 16);
  std::filesystem::remove_all(dir);
}

// A layout of a run file that has no closed form is no reason to fail.
TEST(PlanVerb, ComparesOnlyWhatHasAPrice) {
  const std::string name = ::testing::TempDir() + "plan_verb_own.toml";
  std::ofstream(name)
      << "[model]\nname = \"llama3-8b\"\n[cluster]\nname = \"h100:16\"\n[layout]\npp = 2\n"
         "schedule = \"looped-bfs\"\nchunks = 2\n[batch]\nseq = 8192\nglobal_batch = 64\n"
         "[train]\nsteps = 1\n";
  const Answer ran = answer(plan_verb(), {"plan", name});
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  EXPECT_NE(ran.out.find("your own layout is not compared"), std::string::npos) << ran.out;
  const Answer smaller = answer(plan_verb(), {"plan", name, "--set", "layout.schedule=1f1b",
                                              "--set", "layout.chunks=1", "--cluster", "h100:8"});
  EXPECT_NE(smaller.out.find("it is for 16 devices, not for 8"), std::string::npos) << smaller.out;
  std::remove(name.c_str());
}

// Every pipeline rank has a bar, the fullest what the table says of it.
TEST(PlanVerb, DrawsEveryStage) {
  const std::string name = ::testing::TempDir() + "plan_verb_memory.svg";
  const std::vector<std::string> asked = {"--layout", "tp=4,pp=4,zero=1", "--memory"};
  std::vector<std::string> drawn = asked;
  drawn.insert(drawn.end(), {"--svg", name});
  const Answer ran = run_plan(drawn);
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  for (const char* says : {"\n0 w", "\n3 w", "| a device has 80.0 GiB", "a activations"})
    EXPECT_NE(ran.out.find(says), std::string::npos) << says << "\n" << ran.out;
  std::ifstream file(name);
  const std::string svg((std::istreambuf_iterator<char>(file)), {});
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg.substr(0, 100);
  EXPECT_NE(svg.find("a device has 80.0 GiB"), std::string::npos);
  std::remove(name.c_str());
  const Json json = json_of(asked);
  const Json& row = json.find("plans")->items()[0];
  double most = 0;
  ASSERT_EQ(row.find("stages")->items().size(), 4U);
  for (const Json& stage : row.find("stages")->items())
    most = std::max(most, stage.find("device_bytes")->as_real());
  EXPECT_EQ(most, row.find("memory")->find("device_bytes")->as_real());
}

TEST(PlanVerb, TellsWhatATokenBudgetCosts) {
  const Answer ran = run_plan({"--tokens", "1e12", "--price", "2"}, 120);
  const std::string head = ran.out.substr(0, ran.out.find("\n1 "));
  EXPECT_NE(head.find("  days  "), std::string::npos) << ran.out;
  EXPECT_NE(head.find("cost"), std::string::npos) << ran.out;
}

TEST(PlanVerb, EmitsEachFramework) {
  EXPECT_NE(run_plan({"--emit", "megatron"}).out.find("--tensor-model-parallel-size "),
            std::string::npos);
  EXPECT_NE(run_plan({"--emit", "torchtitan"}).out.find("[parallelism]\n"), std::string::npos);
  EXPECT_TRUE(Json::parse(run_plan({"--emit", "deepspeed"}).out).ok());
}

TEST(PlanVerb, SeeksWhatRunsWhenAsked) {
  const Json json = json_of({"--runnable"});
  for (const Json& row : json.find("plans")->items())
    EXPECT_TRUE(row.find("runs_here")->as_bool()) << row.find("name")->as_text();
}

TEST(PlanVerb, CountsMoneyAndFailures) {
  const Json fast = json_of({"--objective", "time", "--top", "1"});
  const Json cheap = json_of({"--objective", "cost", "--top", "1"});
  const auto per_token = [](const Json& json) {
    const Json& row = json.find("plans")->items()[0];
    return row.find("devices")->as_real() /
           (row.find("tokens_per_s")->as_real() * row.find("goodput")->find("share")->as_real());
  };
  EXPECT_LE(per_token(cheap), per_token(fast));
}

struct Wrong {
  std::vector<std::string> words;
  ExitCode code;
  std::string code_text, says;
  // In the name of its test.
  friend void PrintTo(const Wrong& wrong, std::ostream* out) {
    for (const std::string& word : wrong.words) *out << word << ' ';
  }
};
class PlanMistakes : public ::testing::TestWithParam<Wrong> {};

TEST_P(PlanMistakes, AreToldWithHelp) {
  const Answer ran = answer(plan_verb(), GetParam().words);
  EXPECT_EQ(ran.code, GetParam().code) << ran.out;
  EXPECT_NE(ran.err.find(GetParam().code_text), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find(GetParam().says), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("help: "), std::string::npos) << ran.err;
}

std::vector<std::string> ask(const char* model, const char* cluster, const char* batch,
                             std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"plan", "--model",        model, "--cluster", cluster, "--seq",
                                    "8192", "--global-batch", batch};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

INSTANTIATE_TEST_SUITE_P(
    PlanVerb, PlanMistakes,
    ::testing::Values(
        Wrong{ask("llama3-80b", "h100:64", "512"), ExitCode::kUsage, "LS0301", "llama3-8b"},
        Wrong{ask("llama3-405b", "h100:7", "512"), ExitCode::kCheckFailed, "LS0214", "80.0 GiB"},
        Wrong{ask("llama3-405b", "h100:16384", "1"), ExitCode::kCheckFailed, "LS0215",
              "nearest global_batch: "},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--layout", "tp=3"}), ExitCode::kUsage, "LS0201",
              "dp = 21"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--layout", "tp=8,pp=3"}), ExitCode::kUsage,
              "LS0201", "pp"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--what-if", "netwrk=2x"}), ExitCode::kUsage,
              "LS0003", "network"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--svg", "out.svg"}), ExitCode::kUsage, "LS0106",
              "no --memory"},
        Wrong{{"plan", "run.toml", "--model", "llama3-8b"}, ExitCode::kUsage, "LS0003", "both"},
        Wrong{{"plan", "--model", "llama3-8b"}, ExitCode::kUsage, "LS0003", "--cluster"}));

}  // namespace
}  // namespace lockstep::cli
