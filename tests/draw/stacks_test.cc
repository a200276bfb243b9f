#include "lockstep/draw/stacks.h"
#include "tests/draw/lines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::draw {
namespace {

Stacks some(double limit, std::vector<StackRow> rows) {
  return {"what <ranks> hold", "GiB", {{"weights", 'w'}, {"activations", 'a'}, {"none", 'n'}},
          std::move(rows),     limit, "a device has"};
}

std::string without_colour(const std::string& text) {
  return std::regex_replace(text, std::regex("\x1b\\[[0-9;]*m"), "");
}

std::int64_t times(const std::string& text, const std::string& word) {
  std::int64_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++found;
  return found;
}

// Rows end at their sum, the limit stands in one column of all, and nothing leaves the window.
TEST(Stacks, AreDrawnToScale) {
  for (const double limit : {40.0, 80.0})
    for (const int width : {40, 80, 120}) {
      const Stacks stacks = some(limit, {{"0", {10, 50, 0}, "first"}, {"1", {30, 15, 0}, ""}});
      const auto lines = lines_of(terminal(stacks, {.width = width}));
      const auto limit_at = lines[1].find('|');
      ASSERT_NE(limit_at, std::string::npos);
      EXPECT_EQ(lines[2].find('|'), limit_at);
      for (const std::string& line : lines) EXPECT_LE(line.size(), static_cast<std::size_t>(width));
      const double per_column =
          static_cast<double>(std::ranges::count(lines[1], 'w')) +
          static_cast<double>(std::ranges::count(lines[1].substr(0, lines[1].rfind(" GiB")), 'a'));
      const double second = static_cast<double>(std::ranges::count(lines[2], 'w'));
      EXPECT_NEAR(second / per_column, 30.0 / 60, 1.5 / per_column) << width;
      EXPECT_NE(lines[1].find("60.0 GiB"), std::string::npos);
      EXPECT_NE(lines.back().find(limit == 40 ? "a device has 40.0 GiB" : "80.0 GiB"),
                std::string::npos);
    }
}

TEST(Stacks, WithoutALimitShowNone) {
  Stacks stacks = some(0, {{"0", {10, 50, 0}, ""}});
  stacks.limit_name.clear();
  EXPECT_EQ(terminal(stacks, {.width = 80}).find('|'), std::string::npos);
  EXPECT_EQ(svg(stacks).find("#b00020"), std::string::npos);
  stacks.limit_name = "a device has";
  EXPECT_NE(svg(stacks).find("#b00020"), std::string::npos);
}

TEST(Stacks, OfColourAreAsWideAsOfLetters) {
  const Stacks stacks = some(50, {{"0", {10, 50, 0}, ""}, {"1", {30, 15, 0}, ""}});
  const auto plain = lines_of(terminal(stacks, {.width = 80}));
  const std::string coloured = terminal(stacks, {.width = 80, .colour = true});
  EXPECT_NE(coloured.find("\x1b["), std::string::npos);
  const auto stripped = lines_of(without_colour(coloured));
  ASSERT_EQ(plain.size(), stripped.size());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(plain[i].size(), stripped[i].size());
}

TEST(Stacks, LeaveOutPartsThatNobodyHas) {
  const Stacks stacks = some(50, {{"0", {10, 50, 0}, ""}});
  EXPECT_EQ(terminal(stacks, {.width = 80}).find("none"), std::string::npos);
  EXPECT_EQ(svg(stacks).find("none"), std::string::npos);
}

TEST(Stacks, JoinNeighboursThatAreAlike) {
  std::vector<StackRow> rows = {{"0", {1, 2, 0}, ""}};
  for (int i = 1; i < 9; ++i) rows.push_back({std::to_string(i), {1, 1, 0}, ""});
  const auto lines = lines_of(terminal(some(5, rows), {.width = 80}));
  ASSERT_EQ(lines.size(), 4U);  // title, two bars, legend
  EXPECT_TRUE(lines[2].starts_with("1-8 ")) << lines[2];
}

TEST(Stacks, OfManyKeepTheLongest) {
  for (const std::size_t longest : {0U, 37U, 99U}) {
    std::vector<StackRow> rows;
    for (std::size_t i = 0; i < 100; ++i)
      rows.push_back({std::to_string(i),
                      {1.0 + static_cast<double>(i) / 1000, i == longest ? 9.0 : 1.0, 0},
                      ""});
    const std::string text = terminal(some(12, rows), {.width = 80, .most_coords = 8});
    const auto lines = lines_of(text);
    EXPECT_LE(lines.size(), 13U);
    EXPECT_TRUE(std::ranges::any_of(lines, [&](const std::string& line) {
      return line.find_first_not_of(' ') == line.find(std::to_string(longest) + " w");
    })) << text;
    EXPECT_NE(text.find("99 w"), std::string::npos) << text;
    EXPECT_NE(text.find("of 100 bars"), std::string::npos) << text;
  }
}

TEST(Stacks, AsAPictureHaveEveryPartWithItsSize) {
  const std::string text = svg(some(80, {{"0", {10, 50, 0}, "at <loss>"}, {"1", {30, 15, 0}, ""}}));
  EXPECT_NE(text.find("what &lt;ranks&gt; hold"), std::string::npos);
  EXPECT_NE(text.find("60.0 GiB, at &lt;loss&gt;"), std::string::npos);
  EXPECT_NE(text.find("<title>activations 50.0 GiB</title>"), std::string::npos);
  EXPECT_NE(text.find("a device has 80.0 GiB"), std::string::npos);
  EXPECT_EQ(times(text, "<g><title>"), 4);
  // From top to bottom: title, legend, limit, bars.
  double before = 0;
  for (const char* word : {">what", ">weights<", ">a device", ">0<", ">1<"}) {
    const std::size_t at = text.rfind("y=\"", text.rfind(word));
    const double y = std::stod(text.substr(at + 3));
    EXPECT_GT(y, before) << word;
    before = y;
  }
  EXPECT_EQ(times(text, "<g>"), times(text, "</g>"));
}

}  // namespace
}  // namespace lockstep::draw
