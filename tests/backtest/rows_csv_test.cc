#include "lockstep/backtest/rows_csv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "tests/backtest/published.h"

namespace lockstep::backtest {
namespace {

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
