#include "lockstep/base/csv.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Csv, QuotesProtect) {
  std::string_view text = "a,\"b,\"\"c\"\"\",\r\n\"two\nlines\",x\n\nlast";
  int line = 1;
  EXPECT_EQ(take_csv_record(text, line), (std::vector<std::string>{"a", "b,\"c\"", ""}));
  EXPECT_EQ(line, 2);
  EXPECT_EQ(take_csv_record(text, line), (std::vector<std::string>{"two\nlines", "x"}));
  EXPECT_EQ(line, 4);
  EXPECT_EQ(take_csv_record(text, line), (std::vector<std::string>{""}));
  EXPECT_EQ(take_csv_record(text, line), (std::vector<std::string>{"last"}));
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(line, 5);
}

TEST(Csv, WhatIsQuotedReadsBack) {
  for (const char* cell : {"", "a", "a\"b", "\"", "a,b\nc\"\""}) {
    const std::string quoted = csv_quoted(cell);
    std::string_view text = quoted;
    int line = 1;
    EXPECT_EQ(take_csv_record(text, line), std::vector<std::string>{cell});
  }
}

}  // namespace
}  // namespace lockstep
