#include "lockstep/base/codes.h"

#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <set>
#include <string>

#include "tests/support/golden.h"  // source_dir

namespace lockstep {
namespace {

TEST(Codes, RowsAscend) {
  for (std::size_t i = 1; i < code_table().size(); ++i)
    EXPECT_LT(code_table()[i - 1].code, code_table()[i].code) << to_text(code_table()[i].code);
}

// C++ cannot list enumerators, so the header is read as text.
TEST(Codes, EveryEnumeratorHasARow) {
  std::ifstream header(support::source_dir() + "/lockstep/base/codes.h");
  std::set<int> declared, listed;
  for (std::string line; std::getline(header, line);)
    if (line.starts_with("  k")) declared.insert(std::stoi(line.substr(line.find(" = ") + 3)));
  for (const CodeRow& row : code_table()) listed.insert(static_cast<int>(row.code));
  EXPECT_FALSE(declared.empty());
  EXPECT_EQ(declared, listed);
}

TEST(Codes, EveryCodeReadsBack) {
  for (const CodeRow& row : code_table()) {
    const std::string text = to_text(row.code);
    EXPECT_EQ(text.size(), 6u);
    EXPECT_EQ(parse_code(text), row.code);
    EXPECT_EQ(parse_code(text.substr(2)), row.code);
    EXPECT_EQ(parse_code("ls" + std::to_string(static_cast<int>(row.code))), row.code);
  }
}

TEST(Codes, OtherTextsAreNotCodes) {
  for (const char* text : {"", "LS", "LS9999", "LS00203", "LS-203", "XS0203", "2 03", "0"})
    EXPECT_EQ(parse_code(text), std::nullopt) << text;
}

TEST(Codes, TitlesAreOneLineLowerCaseWithoutFullStop) {
  std::set<std::string_view> titles;
  for (const CodeRow& row : code_table()) {
    SCOPED_TRACE(to_text(row.code));
    ASSERT_FALSE(row.title.empty());
    EXPECT_TRUE(std::islower(static_cast<unsigned char>(row.title.front())));
    EXPECT_NE(row.title.back(), '.');
    EXPECT_EQ(row.title.find('\n'), std::string_view::npos);
    EXPECT_LE(row.title.size(), 80u);
    EXPECT_TRUE(titles.insert(row.title).second) << "title used twice";
    for (const std::string_view text : {row.explanation, row.remedy}) {
      ASSERT_FALSE(text.empty());
      EXPECT_EQ(text.back(), '.');
      EXPECT_EQ(text.find('\n'), std::string_view::npos) << "lines are broken where it is shown";
    }
    ASSERT_FALSE(row.example.empty());
    EXPECT_NE(row.example.back(), '.');
  }
}

}  // namespace
}  // namespace lockstep
