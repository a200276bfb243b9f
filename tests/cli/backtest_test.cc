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

TEST(BacktestVerb, WrongInput) {
  EXPECT_EQ(run_backtest({"backtest", "/nowhere.csv"}).code, ExitCode::kEnvironment);
  const Answer ran = run_backtest({"backtest", support::source_dir() + "/README.md"});
  EXPECT_EQ(ran.code, ExitCode::kUsage);
  EXPECT_NE(ran.err.find("LS0211"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace lockstep::cli
