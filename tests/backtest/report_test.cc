#include "lockstep/backtest/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/backtest/published.h"
#include "tests/support/golden.h"

namespace lockstep::backtest {
namespace {

// The paths that scripts read.
TEST(Report, JsonHasItsFields) {
  RunTable table;
  read_published(table);
  const Json json = to_json(score(table, {}));
  EXPECT_EQ(json.find("schema")->as_text(), "lockstep.backtest/2");
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

constexpr std::size_t kMeasured = 5, kPredicted = 6, kError = 7, kTerms = 8;

// Cells of the lines below the header.
std::vector<std::vector<std::string>> cells_of(const std::string& csv) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream text(csv);
  for (std::string line; std::getline(text, line);) {
    std::istringstream cells(line);
    auto& made = lines.emplace_back();
    for (std::string cell; std::getline(cells, cell, ',');) made.push_back(cell);
  }
  lines.erase(lines.begin());
  return lines;
}

// One line a run; its terms add up to what is predicted, to the six digits each has.
TEST(RowsCsv, TermsAddUp) {
  RunTable table;
  read_published(table);
  const auto lines = cells_of(rows_csv(score(table, {})));
  ASSERT_EQ(lines.size(), table.rows.size());
  int priced = 0;
  for (const std::vector<std::string>& cells : lines) {
    ASSERT_GT(cells.size(), kTerms + cost::kStepTerms.size()) << cells[0];
    double sum = 0;
    for (std::size_t i = 0; i < cost::kStepTerms.size(); ++i) sum += std::stod(cells[kTerms + i]);
    const double predicted = std::stod(cells[kPredicted]);
    EXPECT_NEAR(sum, predicted, 1e-5 * predicted) << cells[0];
    if (cells[kError].empty()) continue;
    EXPECT_NEAR(std::stod(cells[kError]), std::log(predicted / std::stod(cells[kMeasured])), 2e-5);
    ++priced;
  }
  EXPECT_GT(priced, 50);
}

// A row that is not priced has its reason, and no numbers.
TEST(RowsCsv, ReasonsAreThere) {
  RunTable table;
  read_published(table);
  std::vector<std::string> cells;
  for (const std::string& name : table.columns)
    cells.push_back(name == "tp" ? "" : table.rows[0].text(name));
  RunTable changed;
  changed.columns = table.columns;
  changed.rows.emplace_back(&changed.columns, cells);
  const std::string csv = rows_csv(score(changed, {}));
  EXPECT_NE(csv.find("tp is not given"), std::string::npos) << csv;
  EXPECT_TRUE(cells_of(csv)[0][kPredicted].empty()) << csv;
}

}  // namespace
}  // namespace lockstep::backtest
