#include "lockstep/draw/terminal.h"

#include <gtest/gtest.h>

#include <array>
#include <cctype>
#include <cmath>
#include <sstream>

#include "lockstep/base/check.h"
#include "lockstep/draw/figure.h"
#include "tests/draw/lines.h"
#include "tests/draw/samples.h"
#include "tests/support/golden.h"

namespace lockstep::draw {
namespace {

// Escapes removed; every code point that is drawn is one column wide.
std::string stripped(const std::string& line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b')
      while (line[i] != 'm') ++i;
    else
      out += line[i];
  }
  return out;
}

int columns(const std::string& line) {
  int count = 0;
  for (const char c : stripped(line)) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

// The row of a coordinate without its number and its peak.
std::string row_of(const std::string& drawing, int coord) {
  const std::string start = std::to_string(coord) + " ";
  bool in_rows = false;
  for (const std::string& line : lines_of(drawing)) {
    if (in_rows && line.starts_with(start))
      return line.substr(start.size(), line.rfind(' ') - start.size());
    in_rows = in_rows || line.empty();
  }
  return "";
}

TEST(Terminal, NoLineIsWiderThanTheTerminal) {
  for (const Figure& figure : all_figures())
    for (const int width : {20, 21, 40, 59, 60, 80, 120, 200})
      for (const bool colour : {false, true}) {
        const std::string drawing = terminal(figure, {width, colour});
        for (const std::string& line : lines_of(drawing))
          ASSERT_LE(columns(line), width) << figure.title << ": " << line;
        EXPECT_TRUE(drawing.ends_with("\n"));
      }
}

TEST(Terminal, TimeFillsTheWidth) {
  for (const int width : {20, 80, 200})
    for (const bool colour : {false, true}) {
      int widest = 0;
      for (const std::string& line : lines_of(terminal(staged("zbv", {4, 2, 8}), {width, colour})))
        widest = std::max(widest, columns(line));
      EXPECT_EQ(widest, width);
    }
}

TEST(Terminal, WithoutColourAllIsPrintableAscii) {
  for (Figure figure : all_figures()) {
    figure.title = "caf\xC3\xA9 \x1b[31m\x07";
    for (const char c : terminal(figure, {80, false}))
      ASSERT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << figure.title;
  }
}

TEST(Terminal, ATitleCanNotDriveTheTerminal) {
  Figure figure = staged("1f1b", {2, 1, 2});
  figure.title = "\x1b]0;x\x07";
  EXPECT_EQ(terminal(figure, {80, true}).find("\x1b]"), std::string::npos);
}

TEST(Terminal, SameFigureSameBytes) {
  for (const bool colour : {false, true})
    EXPECT_EQ(terminal(staged("zbv", {4, 2, 8}), {97, colour}),
              terminal(staged("zbv", {4, 2, 8}), {97, colour}));
}

// With four columns per pass the row spells the schedule: kind, chunk and microbatch in order.
TEST(Terminal, ARowReadsBackAsItsPasses) {
  for (const pipeline::CatalogRow& row : pipeline::catalog())
    for (const int chunks : {1, 2}) {
      const pipeline::Shape shape = {4, chunks, 12};
      if (!row.build(shape).ok()) continue;
      const pipeline::Schedule schedule = row.build(shape).value();
      const Figure figure = staged(std::string(row.name).c_str(), shape);
      const int width = static_cast<int>(figure.makespan.value) * 4 + 10;
      for (int c = 0; c < shape.coords; ++c) {
        std::string expected, found;
        for (const pipeline::Pass& pass : schedule.passes({c})) {
          const std::string text = to_text(pass);
          const bool is_odd = pass.stage.value / shape.coords % 2 == 1;
          const char kind = text[text.find_first_not_of("0123456789")];
          expected += is_odd ? static_cast<char>(std::tolower(kind)) : kind;
          expected += std::to_string(pass.microbatch.value);
        }
        for (const char ch : row_of(terminal(figure, {width, false}), c))
          if (std::isalnum(static_cast<unsigned char>(ch)) != 0) found += ch;
        EXPECT_EQ(found, expected) << row.name;
      }
    }
}

// In colour the numbers alone are text, and no bar is so narrow that it has none.
TEST(Terminal, NumbersInColourFollowThePasses) {
  const pipeline::Shape shape = {4, 2, 12};
  const Figure figure = staged("zbv", shape);
  const int width = static_cast<int>(figure.makespan.value) * 4 + 10;
  const std::string drawing = terminal(figure, {width, true});
  for (int c = 0; c < shape.coords; ++c) {
    std::string expected, found;
    const pipeline::Schedule zbv = built("zbv", shape);
    for (const pipeline::Pass& pass : zbv.passes({c}))
      expected += std::to_string(pass.microbatch.value);
    for (const char ch : stripped(row_of(drawing, c)))
      if (std::isdigit(static_cast<unsigned char>(ch)) != 0) found += ch;
    EXPECT_EQ(found, expected);
  }
}

struct Cell {
  std::string text;
  std::string left, right;  // colours of its halves: an index, or empty for the terminal's own
};

// What a terminal makes of a row.
std::vector<Cell> cells_of(const std::string& row) {
  std::vector<Cell> cells;
  std::string front, back;
  bool is_reversed = false;
  for (std::size_t i = 0; i < row.size();) {
    if (row[i] == '\x1b') {
      const std::size_t end = row.find('m', i);
      const std::string codes = row.substr(i, end - i);
      const auto colour = [&](const char* key) {
        const std::size_t at = codes.find(key);
        return at == std::string::npos ? "" : std::to_string(std::stoi(codes.substr(at + 6)));
      };
      front = colour(";38;5;"), back = colour(";48;5;");
      is_reversed = codes.ends_with(";7");
      i = end + 1;
      continue;
    }
    std::size_t size = 1;
    while (i + size < row.size() && (static_cast<unsigned char>(row[i + size]) & 0xC0) == 0x80)
      ++size;
    const std::string text = row.substr(i, size);
    const bool is_block = text.starts_with("\xE2\x96");
    const std::string left = is_block ? front : back;
    cells.push_back(is_reversed ? Cell{text, back, front} : Cell{text, left, back});
    i += size;
  }
  return cells;
}

// Numbers take whole columns; neither they nor the grid make a bar or a gap disappear.
TEST(Terminal, EveryBarOfTwoThirdsOfAColumnIsSeen) {
  const Figure figure = staged("1f1b", {8, 1, 32});
  const std::vector<Cell> known =
      cells_of(row_of(terminal(staged("1f1b", {1, 1, 1}), {80, true}), 0));
  const std::string forward = known.front().left, backward = known.back().right;
  ASSERT_NE(forward, backward);
  for (int width = 82; width < 300; width += 13) {
    const std::string drawing = terminal(figure, {width, true});
    for (int c = 0; c < 8; ++c) {
      std::string expected, found;  // letters, without repetition
      const auto add = [](std::string& text, char letter) {
        if (text.empty() || text.back() != letter) text += letter;
      };
      Seconds free;
      for (const Bar& bar : figure.bands[static_cast<std::size_t>(c)].lanes.front().bars) {
        if (bar.start > free) add(expected, '.');
        add(expected, letter(bar.ink));
        free = bar.end;
      }
      if (free < figure.makespan) add(expected, '.');
      for (const Cell& cell : cells_of(row_of(drawing, c)))
        for (const std::string& colour : {cell.left, cell.right})
          add(found, colour.empty() ? '.' : colour == backward ? 'B' : 'F');
      ASSERT_EQ(found, expected) << width << " columns, pipeline rank " << c;
    }
  }
}

TEST(Terminal, NumbersStandOnTheirBars) {
  const Figure figure = staged("zbv", {4, 2, 12});
  for (int width = 90; width < 260; width += 13) {
    const std::string drawing = terminal(figure, {width, true});
    int digits = 0;
    for (int c = 0; c < 4; ++c) {
      const std::vector<Cell> cells = cells_of(row_of(drawing, c));
      for (std::size_t i = 0; i < cells.size(); ++i) {
        if (std::isdigit(static_cast<unsigned char>(cells[i].text[0])) == 0) continue;
        ++digits;
        // At the middle of the column, whatever begins there.
        const double time = (static_cast<double>(i) + 0.5) / static_cast<double>(cells.size()) *
                            figure.makespan.value;
        const double column = figure.makespan.value / static_cast<double>(cells.size());
        const auto& bars = figure.bands[static_cast<std::size_t>(c)].lanes.front().bars;
        EXPECT_TRUE(std::ranges::any_of(
            bars,
            [&](const Bar& bar) {
              const double middle = (bar.start + bar.end).value / 2;
              const bool is_central = bar.microbatch > 9 || std::abs(middle - time) < 0.51 * column;
              return bar.start.value <= time + 1e-9 && time - 1e-9 <= bar.end.value && is_central &&
                     std::to_string(bar.microbatch).find(cells[i].text) != std::string::npos;
            }))
            << width << " columns, column " << i << " of pipeline rank " << c;
      }
    }
    EXPECT_GT(digits, 100) << width;
  }
}

TEST(Terminal, NothingIsDrawnOfNothing) {
  for (const bool colour : {false, true}) {
    EXPECT_NE(terminal(Figure{}, {80, colour}).find("step time 0 s"), std::string::npos);
    Figure figure;
    figure.bands.push_back({{0}, {{LaneKind::kCompute, "compute", {}}}, {{{}, 0}}});
    EXPECT_NE(terminal(figure, {80, colour}).find("idle"), std::string::npos);
  }
}

// However many bars share a column, each ink and idle time get their part of the row.
TEST(Terminal, NarrowBarsKeepTheirShare) {
  for (const int microbatches : {20, 133, 1000}) {
    const Figure figure = staged("1f1b", {3, 1, microbatches});
    for (const Band& band : figure.bands)
      for (const int columns : {7, 40, 77, 200}) {
        const std::vector<draw::Run> all = runs(band.lanes.front().bars);
        std::array<double, kNumInks> expected = {}, found = {};
        for (const draw::Run& run : all)
          expected[static_cast<std::size_t>(run.ink)] +=
              (run.end - run.start).value / figure.makespan.value * columns;
        for (const int run : dealt(all, figure.makespan, columns))
          if (run >= 0) ++found[static_cast<std::size_t>(all[static_cast<std::size_t>(run)].ink)];
        // Each time one has a column alone, less than a column may be forgotten.
        const double slack = microbatches > columns ? 4 : 0.2 * columns;
        for (int ink = 0; ink < kNumInks; ++ink)
          EXPECT_NEAR(found[static_cast<std::size_t>(ink)], expected[static_cast<std::size_t>(ink)],
                      slack)
              << microbatches << " microbatches on " << columns << " columns";
      }
  }
}

TEST(Terminal, ManyCoordinatesAreThinnedOut) {
  const std::string drawing = terminal(staged("1f1b", {64, 1, 80}), {80, false, 16});
  EXPECT_NE(drawing.find("every 4th of 64 pipeline ranks, and the last"), std::string::npos);
  int rows = 0;
  for (const std::string& line : lines_of(drawing))
    rows +=
        line.size() > 3 && std::isdigit(static_cast<unsigned char>(line[1])) != 0 && line[2] == ' ';
  EXPECT_EQ(rows, 17);
  EXPECT_EQ(terminal(staged("1f1b", {16, 1, 20}), {80, false, 16}).find("every"),
            std::string::npos);
}

TEST(Terminal, TooNarrowIsRefused) {
  EXPECT_THROW(terminal(staged("1f1b", {2, 1, 2}), {19, false}), BrokenInvariant);
}

TEST(Terminal, Golden) {
  EXPECT_TRUE(support::matches_golden("draw/1f1b_p4_m8.txt",
                                      terminal(staged("1f1b", {4, 1, 8}), {80, false})));
}

}  // namespace
}  // namespace lockstep::draw
