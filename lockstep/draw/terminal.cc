#include "lockstep/draw/terminal.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <span>

#include "lockstep/base/check.h"

namespace lockstep::draw {
namespace {

// One row of a terminal drawing: the bars of a lane on so many columns.

constexpr int kIdle = -1;
constexpr int kIdleText = 244, kWhite = 231, kBlack = 16;
constexpr int kEighths = 8;

// Relative luminance of one of the 6 x 6 x 6 colours or greys, roughly.
bool is_dark(int colour) {
  if (colour >= 232) return colour < 244;
  const int cube = colour - 16;
  return 3 * (cube / 36) + 6 * (cube / 6 % 6) + cube % 6 < 24;
}

struct Cell {
  std::string text = " ";
  int front = kIdle;
  int back = kIdle;
  bool is_reversed = false;  // paints the default background over the front colour
};

Cell solid(int colour) {
  if (colour == kIdle) return {"\xC2\xB7", kIdleText, kIdle};  // middle dot
  return {" ", kIdle, colour};
}

Cell split(int left, int right, int eighths) {
  if (left == right) return solid(left);
  std::string block = "\xE2\x96\x90";  // U+2590, which the left blocks precede
  block.back() = static_cast<char>(block.back() - eighths);
  if (left == kIdle) return {block, right, kIdle, true};
  return {block, left, right};
}

using Eighths = std::array<int, kEighths>;

// The colour that most of [begin, end) have, and how many.
std::pair<int, int> mode(const Eighths& part, int begin, int end) {
  std::pair<int, int> best = {kIdle, 0};
  for (int i = begin; i < end; ++i) {
    const auto same =
        static_cast<int>(std::count(part.begin() + begin, part.begin() + end, part[i]));
    if (same > best.second) best = {part[i], same};
  }
  return best;
}

// A cell has room for one edge; with more than two, none of them can be shown.
bool is_crowded(const Eighths& part) {
  int edges = 0;
  for (int i = 1; i < kEighths; ++i) edges += part[i] != part[i - 1] ? 1 : 0;
  return edges > 2;
}

// The cell with at most one edge that is right in most eighths.
Cell closest(const Eighths& part) {
  Cell best = solid(part[0]);
  int most = 0;
  for (int edge = kEighths; edge > 0; --edge) {
    const auto [left, left_count] = mode(part, 0, edge);
    const auto [right, right_count] =
        edge < kEighths ? mode(part, edge, kEighths) : std::pair(left, 0);
    if (left_count + right_count <= most) continue;
    most = left_count + right_count;
    best = split(left, right, edge);
  }
  return best;
}

// Colours of runs: one that touches another of its kind takes the other shade.
std::vector<int> run_colours(std::span<const Run> runs) {
  std::vector<int> result;
  int shade = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const bool touches = i > 0 && runs[i - 1].end == runs[i].start &&
                         runs[i - 1].ink == runs[i].ink &&
                         runs[i - 1].chunk % 2 == runs[i].chunk % 2;
    shade = touches ? 1 - shade : 0;
    result.push_back(look_of(runs[i].ink).terminal[runs[i].chunk % 2][shade]);
  }
  return result;
}

// Puts numbers on runs that are as wide as their number. It takes whole columns, each mostly its
// run's own, and never so much of what is beside it, idle time included, that this vanishes.
class Labels {
 public:
  Labels(std::span<const Run> runs, double per_second, int columns) : taken_(columns, false) {
    double end = 0;
    for (const Run& run : runs) {
      const double left = run.start.value * per_second, right = run.end.value * per_second;
      if (left > end) pieces_.push_back({end, left});
      runs_.push_back(pieces_.size());
      pieces_.push_back({left, right});
      end = right;
    }
  }

  // The first column of a text of that size on the run; -1 where it does not fit.
  int place(std::size_t run, int size) {
    const std::size_t piece = runs_[run];
    const auto [left, right, _] = pieces_[piece];
    const int first = static_cast<int>(std::lround((left + right - size) / 2)), end = first + size;
    if (right - left < kTightest * size || !is_free(piece, first, end)) return -1;
    if (piece > 0 && vanishes(piece - 1, first, end)) return -1;
    if (piece + 1 < pieces_.size() && vanishes(piece + 1, first, end)) return -1;
    if (piece > 0) pieces_[piece - 1].lost += covered(piece - 1, first, end);
    if (piece + 1 < pieces_.size()) pieces_[piece + 1].lost += covered(piece + 1, first, end);
    std::fill(taken_.begin() + first, taken_.begin() + end, true);
    return first;
  }

 private:
  static constexpr double kTightest = 0.9;  // columns of a run per column of its number
  static constexpr double kMostLost = 0.51;

  struct Piece {  // a run or the idle time between two
    double left;
    double right;
    double lost = 0;  // columns of it that numbers of others cover
  };

  double covered(std::size_t piece, int begin, int end) const {
    return std::max(0.0, std::min<double>(pieces_[piece].right, end) -
                             std::max<double>(pieces_[piece].left, begin));
  }

  bool vanishes(std::size_t piece, int first, int end) const {
    const double more = covered(piece, first, end);
    const double size = pieces_[piece].right - pieces_[piece].left;
    return more > 0 && pieces_[piece].lost + more > kMostLost * size;
  }

  bool is_free(std::size_t piece, int first, int end) const {
    if (first < 0 || end > static_cast<int>(taken_.size())) return false;
    for (int column = first; column < end; ++column)
      if (taken_[column] || covered(piece, column, column + 1) < 0.5) return false;
    return true;
  }

  std::vector<Piece> pieces_;
  std::vector<std::size_t> runs_;  // where each is among the pieces
  std::vector<bool> taken_;        // columns
};

void put_numbers(std::span<const Run> runs, const std::vector<int>& colour, Labels labels,
                 std::vector<Cell>& cells) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].microbatch < 0) continue;
    const std::string text = std::to_string(runs[i].microbatch);
    const int first = labels.place(i, static_cast<int>(text.size()));
    for (std::size_t k = 0; first >= 0 && k < text.size(); ++k)
      cells[first + k] = {std::string(1, text[k]), is_dark(colour[i]) ? kWhite : kBlack, colour[i]};
  }
}

std::string escape(const Cell& cell) {
  std::string codes = "\x1b[0";
  if (cell.front != kIdle) codes += ";38;5;" + std::to_string(cell.front);
  if (cell.back != kIdle) codes += ";48;5;" + std::to_string(cell.back);
  if (cell.is_reversed) codes += ";7";
  return codes + "m";
}

std::string written(const std::vector<Cell>& cells) {
  std::string text, current;
  for (const Cell& cell : cells) {
    if (std::string codes = escape(cell); codes != current) text += current = std::move(codes);
    text += cell.text;
  }
  return text + "\x1b[0m";
}

// ASCII alone: letter, number, then a filling of its own for each ink; dots are idle.
std::string plain_row(std::span<const Run> runs, Seconds span, int columns) {
  const std::vector<int> speaker = dealt(runs, span, columns);
  std::string row;
  for (std::size_t begin = 0; begin < speaker.size();) {
    std::size_t end = begin;
    while (end < speaker.size() && speaker[end] == speaker[begin]) ++end;
    if (speaker[begin] < 0) {
      row.append(end - begin, '.');
    } else {
      const Run& run = runs[speaker[begin]];
      const char upper = letter(run.ink);
      std::string text(1, run.chunk % 2 == 0 ? upper : static_cast<char>(std::tolower(upper)));
      const std::string number = run.microbatch < 0 ? "" : std::to_string(run.microbatch);
      if (text.size() + number.size() <= end - begin) text += number;
      text.resize(end - begin, look_of(run.ink).filling);
      row += text;
    }
    begin = end;
  }
  return row;
}

// Background colours, edges to an eighth of a column. Ends with colours reset.
std::string coloured_row(std::span<const Run> runs, Seconds span, int columns) {
  const std::vector<int> speaker = dealt(runs, span, columns * kEighths);
  const std::vector<int> whole = dealt(runs, span, columns);
  const std::vector<int> colour = run_colours(runs);
  const auto colour_of = [&](int run) { return run < 0 ? kIdle : colour[run]; };
  std::vector<Cell> cells;
  for (int column = 0; column < columns; ++column) {
    Eighths part;
    for (int k = 0; k < kEighths; ++k) part[k] = colour_of(speaker[column * kEighths + k]);
    cells.push_back(is_crowded(part) ? solid(colour_of(whole[column])) : closest(part));
  }
  if (span.value > 0) put_numbers(runs, colour, Labels(runs, columns / span.value, columns), cells);
  return written(cells);
}

// Half as high, without numbers.
std::string coloured_thin_row(std::span<const Run> runs, Seconds span, int columns) {
  const std::vector<int> colour = run_colours(runs);
  std::vector<Cell> cells;
  for (const int run : dealt(runs, span, columns))
    cells.push_back(run < 0 ? Cell{} : Cell{"\xE2\x96\x80", colour[run], kIdle});
  return written(cells);
}

// Two columns for a legend.
std::string coloured_sample(int colour) { return written({solid(colour), solid(colour)}); }

constexpr int kLeastWidth = 20;
constexpr int kWidthForPeaks = 60;  // below, every column is needed for time

class Drawing {
 public:
  Drawing(const Figure& figure, const TerminalStyle& style)
      : figure_(figure), style_(style), shown_(shown(figure.bands.size(), style.most_coords)) {
    LS_CHECK(style.width >= kLeastWidth && style.most_coords >= 2, "a drawing of ", style.width,
             " columns and ", style.most_coords, " pipeline ranks");
    for (const std::size_t c : shown_) {
      const Band& band = figure.bands[c];
      label_ = std::max(label_, static_cast<int>(std::to_string(band.coord.value).size()));
      peak_ = std::max(peak_, static_cast<int>(held_text(figure, peak(band)).size()));
    }
    if (style.width < kWidthForPeaks) peak_ = -1;
    columns_ = style.width - label_ - 1 - (peak_ + 1);
  }

  std::string draw() const {
    std::string text = flowed(
        figure_.title.empty() ? figure_.shape : figure_.title + ": " + figure_.shape, style_.width);
    text += flowed(summary(figure_), style_.width) + "\n";
    for (const std::size_t c : shown_) text += rows(figure_.bands[c]);
    text += axis() + legend();
    if (is_crowded())
      text += flowed("bars share columns, in turns that keep each one's part of the time",
                     style_.width);
    if (shown_.size() < figure_.bands.size())
      text += flowed(shown_text(figure_.bands.size(), style_.most_coords), style_.width);
    return text;
  }

 private:
  // Whether bars are on average narrower than a column.
  bool is_crowded() const {
    return std::ranges::any_of(figure_.bands, [this](const Band& band) {
      return static_cast<int>(runs(band.lanes.front().bars).size()) > columns_;
    });
  }

  std::string rows(const Band& band) const {
    const std::vector<Run> compute = runs(band.lanes.front().bars);
    std::string text = padded(std::to_string(band.coord.value), label_) + " ";
    text += style_.colour ? coloured_row(compute, figure_.makespan, columns_)
                          : plain_row(compute, figure_.makespan, columns_);
    if (peak_ >= 0) text += " " + padded(held_text(figure_, peak(band)), peak_);
    text += "\n";
    if (const std::vector<Run> shared = collectives(band); !shared.empty()) {
      text += std::string(label_ + 1, ' ');
      text += style_.colour ? coloured_thin_row(shared, figure_.makespan, columns_)
                            : plain_row(shared, figure_.makespan, columns_);
      text += "\n";
    }
    return text;
  }

  // Of all groups on one row: what one lane does while another is busy gives way to it.
  static std::vector<Run> collectives(const Band& band) {
    std::vector<Bar> bars;
    for (const Lane& lane : band.lanes)
      if (lane.kind == LaneKind::kCollective)
        bars.insert(bars.end(), lane.bars.begin(), lane.bars.end());
    std::ranges::stable_sort(bars, {}, &Bar::start);
    Seconds free;
    std::vector<Bar> kept;
    for (Bar& bar : bars) {
      bar.start = std::max(bar.start, free);
      if (bar.start >= bar.end) continue;
      free = bar.end;
      kept.push_back(bar);
    }
    return runs(kept);
  }

  std::string axis() const {
    constexpr int kColumnsPerTick = 9;
    const Axis axis = axis_of(figure_, std::max(1, columns_ / kColumnsPerTick));
    const int last = label_ + 1 + columns_;
    std::string line;
    for (const Tick& tick : axis.ticks) {
      const double share =
          figure_.makespan.value > 0 ? tick.time.value / figure_.makespan.value : 0;
      const int column = label_ + 1 + static_cast<int>(std::lround(share * columns_));
      const std::string mark = "|" + tick.label;
      const bool fits = column >= static_cast<int>(line.size()) + (line.empty() ? 0 : 1) &&
                        column + static_cast<int>(mark.size()) <= last;
      if (!fits) continue;
      line.resize(column, ' ');
      line += mark;
    }
    const std::string unit = printable(axis.unit);
    const bool fits_unit = static_cast<int>(line.size() + 1 + unit.size()) <= style_.width;
    if (!unit.empty() && fits_unit) line += " " + unit;
    return line + "\n";
  }

  std::string legend() const {
    std::vector<Item> items;
    const auto add = [&](const std::string& sample, std::string_view words) {
      items.push_back({sample + " " + std::string(words), 3 + static_cast<int>(words.size())});
    };
    const bool has_chunks = chunks(figure_) > 1;
    for (const Ink ink : inks(figure_))
      if (ink != Ink::kTransfer)
        add(style_.colour ? coloured_sample(look_of(ink).terminal[0][0])
                          : std::string{letter(ink), look_of(ink).filling},
            to_text(ink));
    add(style_.colour ? coloured_sample(kIdle) : "..", "idle");
    const auto note = [&](const std::string& words) {
      items.push_back({words, static_cast<int>(words.size())});
    };
    if (has_chunks)
      note(style_.colour ? "lighter: odd virtual stages" : "lower case: odd virtual stages");
    if (peak_ >= 0)
      note("right: peak" +
           (figure_.memory_unit == "B" ? "" : ", " + printable(figure_.memory_unit)));
    return flowed(items, 3, style_.width);
  }

  const Figure& figure_;
  const TerminalStyle& style_;
  std::vector<std::size_t> shown_;
  int label_ = 1;    // columns of the number of a pipeline rank
  int peak_ = 1;     // columns of what is held at most; -1: not shown
  int columns_ = 0;  // columns of time
};

}  // namespace

std::string terminal(const Figure& figure, const TerminalStyle& style) {
  return Drawing(figure, style).draw();
}

std::string printable(std::string text) {
  for (char& c : text)
    if (c < 0x20 || c > 0x7e) c = '?';
  return text;
}

std::string padded(const std::string& text, int width) {
  const auto size = static_cast<int>(text.size());
  return std::string(std::max(0, width - size), ' ') + text;
}

std::string flowed(const std::vector<Item>& items, int gap, int width) {
  std::string lines;
  int used = 0;
  for (Item item : items) {
    if (item.width > width) {
      item.text.resize(width);
      item.width = width;
    }
    const bool is_first = used == 0;
    if (!is_first && used + gap + item.width > width) {
      lines += "\n";
      used = 0;
    } else if (!is_first) {
      lines.append(gap, ' ');
      used += gap;
    }
    lines += item.text;
    used += item.width;
  }
  return lines.empty() ? "" : lines + "\n";
}

std::string flowed(const std::string& text, int width) {
  std::vector<Item> words;
  const std::string clean = printable(text);
  for (std::size_t begin = 0; begin < clean.size();) {
    const std::size_t end = std::min(clean.find(' ', begin), clean.size());
    for (std::size_t at = begin; at < end; at += static_cast<std::size_t>(width)) {
      const std::size_t size = std::min(end - at, static_cast<std::size_t>(width));
      words.push_back({clean.substr(at, size), static_cast<int>(size)});
    }
    begin = end + 1;
  }
  return flowed(words, 1, width);
}

}  // namespace lockstep::draw
