#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "tests/cli/answer.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

Answer run_backtest(const std::vector<std::string>& arguments) {
  return answer(backtest_verb(), arguments);
}

std::string runs() { return support::source_dir() + "/tests/backtest/runs.csv"; }

TEST(BacktestVerb, TableHasEverySource) {
  const Answer ran = run_backtest({"backtest", runs()});
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  for (const char* source : {"simumax-b200-real", "korthikanti-2022", "llama3-405b", "mt-nlg-530b"})
    EXPECT_NE(ran.out.find(source), std::string::npos) << source;
}

TEST(BacktestVerb, JsonHasTheFieldsScriptsRead) {
  const Answer ran = run_backtest({"backtest", runs(), "--json"});
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  const auto json = Json::parse(ran.out);
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ(json->find("calibration")->find("memory")->find("rows")->as_int(), 43);
  EXPECT_EQ(json->find("heldout")->find("step_time")->find("rows")->as_int(), 15);
}

TEST(BacktestVerb, RowsAreWritten) {
  const std::string file = testing::TempDir() + "backtest_rows.csv";
  ASSERT_EQ(run_backtest({"backtest", runs(), "--rows", file}).code, ExitCode::kOk);
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  EXPECT_TRUE(line.starts_with("id,source,split,")) << line;
  EXPECT_EQ(run_backtest({"backtest", runs(), "--rows", "/nowhere/rows.csv"}).code,
            ExitCode::kEnvironment);
}

// The rules are the committed file, and built in.
TEST(BacktestVerb, BuiltInRulesAreTheFile) {
  const std::string file = support::source_dir() + "/bench/backtest/excluded.toml";
  EXPECT_EQ(run_backtest({"backtest", runs(), "--json"}).out,
            run_backtest({"backtest", runs(), "--json", "--excluded", file}).out);
}

// simumax has 43 timed rows, the others fewer: who is left out is said, leaving all out is refused.
TEST(BacktestVerb, AdaptSaysWhichSourcesAreTooSmall) {
  const auto adapt = [](const char* known, const char* form = "--draws=2") {
    return run_backtest({"backtest", runs(), "--adapt", known, form});
  };
  const Answer some = adapt("0,20");
  EXPECT_EQ(some.code, ExitCode::kOk) << some.err;
  EXPECT_NE(some.out.find("20 known, step time: korthikanti-2022 is left out, with "),
            std::string::npos)
      << some.out;
  EXPECT_EQ(some.out.find("simumax-b200-real is left out"), std::string::npos);
  const Json json = Json::parse(adapt("20", "--json").out).value();
  const Json& twenty = json.find("adapt")->items().front();
  EXPECT_GT(twenty.find("rows")->as_int(), 0);
  EXPECT_FALSE(twenty.find("left_out")->items().empty());
  const Answer none = adapt("500");
  EXPECT_EQ(none.code, ExitCode::kUsage);
  EXPECT_NE(none.err.find("no source has more than 501 rows"), std::string::npos) << none.err;
}

TEST(BacktestVerb, WrongInput) {
  EXPECT_EQ(run_backtest({"backtest", "/nowhere.csv"}).code, ExitCode::kEnvironment);
  const Answer ran = run_backtest({"backtest", support::source_dir() + "/README.md"});
  EXPECT_EQ(ran.code, ExitCode::kUsage);
  EXPECT_NE(ran.err.find("LS0211"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace lockstep::cli
