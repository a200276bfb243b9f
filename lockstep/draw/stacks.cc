#include "lockstep/draw/stacks.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/draw/stack_bars.h"
#include "lockstep/draw/terminal_text.h"

namespace lockstep::draw {
namespace {

constexpr int kLeastStackWidth = 40;
constexpr int kWidthForNotes = 100;
constexpr int kNoPart = -1;

class StackDrawing {
 public:
  StackDrawing(const Stacks& stacks, const TerminalStyle& style)
      : stacks_(stacks), style_(style), bars_(stack_bars(stacks, style.most_coords)) {
    LS_CHECK(style.width >= kLeastStackWidth, "stacks on ", style.width, " columns");
    for (const StackBar& bar : bars_.bars) {
      label_ = std::max(label_, static_cast<int>(bar.label.size()));
      number_ = std::max(number_, static_cast<int>(number(bar).size()));
      if (style.width >= kWidthForNotes)
        note_ = std::max(note_, static_cast<int>(bar.note.size()) + 2);
    }
    // The limit takes a column of its own.
    columns_ = style.width - label_ - 1 - 1 - (2 + number_) - note_;
    scale_ = bars_.extent > 0 ? columns_ / bars_.extent : 0;
    if (!bars_.limit_is_far) limit_ = column(stacks.limit);
  }

  std::string draw() const {
    std::string text = stacks_.title.empty() ? "" : flowed(stacks_.title, style_.width);
    for (const StackBar& bar : bars_.bars) text += row(bar);
    text += legend();
    return bars_.left_out.empty() ? text : text + flowed(bars_.left_out, style_.width);
  }

 private:
  std::string number(const StackBar& bar) const { return strf("%.1f ", bar.total) + stacks_.unit; }
  int column(double size) const { return static_cast<int>(std::lround(size * scale_)); }

  std::string row(const StackBar& bar) const {
    std::string text = padded(printable(bar.label), label_) + " ";
    const std::vector<int> cells = cells_of(bar);
    for (int i = 0; i < columns_; ++i) {
      const int part = cells[static_cast<std::size_t>(i)];
      if (i == limit_) text += limit(i > 0 ? part : kNoPart);
      text += cell(part);
    }
    if (limit_ == columns_) text += limit(kNoPart);
    text += "  " + padded(number(bar), number_);
    if (note_ > 0 && !bar.note.empty()) text += "  " + printable(bar.note);
    return text + "\n";
  }

  // The part that each column shows.
  std::vector<int> cells_of(const StackBar& bar) const {
    std::vector<int> cells(static_cast<std::size_t>(columns_), kNoPart);
    double sum = 0;
    for (std::size_t part = 0; part < bar.sizes.size(); ++part) {
      const int begin = column(sum), end = std::min(columns_, column(sum += bar.sizes[part]));
      for (int i = begin; i < end; ++i) cells[static_cast<std::size_t>(i)] = static_cast<int>(part);
    }
    return cells;
  }

  std::string cell(int part) const {
    if (part == kNoPart) return " ";
    const auto index = static_cast<std::size_t>(part);
    return style_.colour ? strf("\x1b[48;5;%dm \x1b[0m", stack_colour(index).terminal)
                         : std::string(1, stacks_.parts[index].letter);
  }

  // Inside a bar it has that one's colour behind it.
  std::string limit(int part) const {
    if (!style_.colour) return "|";
    const std::string back =
        part == kNoPart ? ""
                        : strf(";48;5;%d", stack_colour(static_cast<std::size_t>(part)).terminal);
    return "\x1b[1;31" + back + "m|\x1b[0m";
  }

  std::string legend() const {
    std::vector<Item> items;
    for (std::size_t part = 0; part < stacks_.parts.size(); ++part) {
      if (!has_part(stacks_, part)) continue;
      const std::string name = printable(stacks_.parts[part].name);
      items.push_back(
          {cell(static_cast<int>(part)) + " " + name, 2 + static_cast<int>(name.size())});
    }
    const std::string name =
        printable(stacks_.limit_name) + strf(" %.1f ", stacks_.limit) + stacks_.unit;
    const bool is_drawn = limit_ != kNoPart;
    items.push_back({(is_drawn ? limit(kNoPart) + " " : "") + name,
                     (is_drawn ? 2 : 0) + static_cast<int>(name.size())});
    return flowed(items, 2, style_.width);
  }

  const Stacks& stacks_;
  const TerminalStyle& style_;
  const StackBars bars_;
  int label_ = 1, number_ = 1, note_ = 0;  // columns of each
  int columns_ = 0;                        // of the longest bar, the limit's not counted
  int limit_ = kNoPart;                    // before this column; kNoPart: not drawn
  double scale_ = 0;
};

}  // namespace

std::string terminal(const Stacks& stacks, const TerminalStyle& style) {
  return StackDrawing(stacks, style).draw();
}

}  // namespace lockstep::draw
