#include "lockstep/backtest/report.h"

#include <gtest/gtest.h>

#include "tests/backtest/published.h"

namespace lockstep::backtest {
namespace {

// The paths that scripts read.
TEST(Report, JsonHasItsFields) {
  RunTable table;
  read_published(table);
  const Json json = to_json(score(table, {}));
  EXPECT_EQ(json.find("schema")->as_text(), "lockstep.backtest/1");
  for (const char* split : {"heldout", "calibration"})
    for (const char* kind : {"step_time", "memory", "baseline"})
      for (const char* field : {"rows", "median", "p90", "bias"})
        EXPECT_TRUE(json.find(split)->find(kind)->find(field)->is_number())
            << split << kind << field;
  for (const char* field : {"right", "total"}) EXPECT_TRUE(json.find("oom")->find(field)->is_int());
  EXPECT_EQ(json.find("sources")->items().size(), 4u);
}

TEST(Report, PageNamesEverySource) {
  RunTable table;
  read_published(table);
  const std::string page = accuracy_page(score(table, {}), "runs.csv");
  for (const char* name : {"simumax-b200-real", "korthikanti-2022", "llama3-405b", "mt-nlg-530b"})
    EXPECT_NE(page.find(name), std::string::npos) << name;
  EXPECT_EQ(page.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::backtest
