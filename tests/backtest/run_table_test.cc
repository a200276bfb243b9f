#include "lockstep/backtest/run_table.h"

#include <gtest/gtest.h>

namespace lockstep::backtest {
namespace {

std::string header() {
  std::string text;
  for (const std::string& name : required_columns()) text += (text.empty() ? "" : ",") + name;
  return text + "\n";
}

std::string row_with(const std::string& column, const std::string& value) {
  std::string text;
  for (const std::string& name : required_columns())
    text += (text.empty() ? "" : ",") + (name == column ? value : name == "id" ? "x-1" : "");
  return text + "\n";
}

TEST(RunTable, QuotesProtectCommasAndLineEnds) {
  RunTable table;
  ASSERT_TRUE(read_runs(header() + row_with("notes", "\"a, \"\"b\"\"\nc\"") + "\r\n", table).ok());
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0].text("notes"), "a, \"b\"\nc");
}

TEST(RunTable, ColumnsAreStrict) {
  RunTable table;
  std::string text = header();
  text.replace(text.find("hidden"), 6, "hiden_");
  const auto bad = read_runs(text + row_with("id", "1"), table);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, Code::kBadRunTable);
  EXPECT_NE(bad.error().message.find("hidden"), std::string::npos);
  EXPECT_NE(bad.error().message.find("hiden_"), std::string::npos);
  EXPECT_FALSE(read_runs("", table).ok());
  EXPECT_FALSE(read_runs(header(), table).ok());
  EXPECT_FALSE(read_runs(header() + "a,b\n", table).ok());
}

TEST(RunTable, ValuesAreNot) {
  RunTable table;
  ASSERT_TRUE(read_runs(header() + row_with("layers", "many"), table).ok());
  EXPECT_EQ(table.rows[0].number("layers"), std::nullopt);
  EXPECT_EQ(table.rows[0].measured_seconds(), std::nullopt);
}

}  // namespace
}  // namespace lockstep::backtest
