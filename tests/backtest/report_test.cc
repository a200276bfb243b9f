#include "lockstep/backtest/report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/backtest/published.h"
#include "tests/support/golden.h"

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

// The committed page carries the figures of unseen.h, which no table of runs gives.
TEST(Report, PageCarriesTheSourcesNeverLookedAt) {
  RunTable table;
  read_published(table);
  const auto section = [](const std::string& page) {
    const std::size_t begin = page.find("## Sources never looked at");
    return page.substr(begin, page.find("\n## ", begin) - begin);
  };
  std::ifstream file(support::source_dir() + "/docs/accuracy.md");
  const std::string committed((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(section(accuracy_page(score(table, {}), "runs.csv")), section(committed));
  EXPECT_NE(section(committed).find("| 404 | 16 | 235 | 24.6 | 52.4 | 38.9 |"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::backtest
