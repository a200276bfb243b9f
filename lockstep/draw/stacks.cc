#include "lockstep/draw/stacks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/draw/figure.h"
#include "lockstep/draw/svg_text.h"

namespace lockstep::draw {
namespace {

// What both forms of stacks.h draw: the bars that are left once alike neighbours are joined and
// many are thinned out.
struct StackBar : StackRow {  // its label "1-14" for neighbours that are alike
  double total = 0;
};

struct StackBars {
  std::vector<StackBar> bars;
  std::string left_out;       // a sentence; empty: nothing is
  double extent = 0;          // of the longest bar, or the limit if that is more and not far away
  bool limit_is_far = false;  // more than twenty times the longest bar, which would not be seen
};

// Colours of parts in their order: three blues, two oranges, two greys, which differ in lightness;
// the index is one of a terminal's 256.
struct StackColour {
  const char* paper;  // "#00548c"
  int terminal;
  bool is_dark;
};
constexpr StackColour kStackColours[kMostStackParts] = {
    {"#00548c", 25, true},   {"#4f9bd0", 74, false},  {"#b3d4ec", 153, false},
    {"#d55e00", 166, false}, {"#f0b429", 214, false}, {"#8a8a8a", 245, false},
    {"#d4d4d4", 252, false}};

std::vector<StackBar> joined(const Stacks& stacks) {
  std::vector<StackBar> bars;
  std::string first;
  for (const StackRow& row : stacks.rows) {
    LS_CHECK(row.sizes.size() == stacks.parts.size(), "a row has a size for each part");
    if (!bars.empty() && bars.back().sizes == row.sizes && bars.back().note == row.note) {
      bars.back().label = first + "-" + row.label;
      continue;
    }
    first = row.label;
    bars.push_back({row, std::accumulate(row.sizes.begin(), row.sizes.end(), 0.0)});
  }
  return bars;
}

StackBars stack_bars(const Stacks& stacks, int most) {
  LS_CHECK(!stacks.rows.empty() && stacks.parts.size() <= kMostStackParts, "stacks of ",
           stacks.rows.size(), " rows and ", stacks.parts.size(), " parts");
  std::vector<StackBar> all = joined(stacks);
  StackBars found;
  const std::size_t longest = std::ranges::max_element(all, {}, &StackBar::total) - all.begin();
  const double most_held = all[longest].total;
  found.limit_is_far = stacks.limit > 20 * most_held;
  found.extent = found.limit_is_far ? most_held : std::max(stacks.limit, most_held);
  std::vector<std::size_t> kept = shown(all.size(), most);
  if (!std::ranges::binary_search(kept, longest))
    kept.insert(std::ranges::upper_bound(kept, longest), longest);
  if (kept.size() < all.size())
    found.left_out = "shown are " + std::to_string(kept.size()) + " of " +
                     std::to_string(all.size()) + " bars, the last and the longest among them";
  for (const std::size_t i : kept) found.bars.push_back(std::move(all[i]));
  return found;
}

// Whether any row has some of it.
bool has_part(const Stacks& stacks, std::size_t part) {
  return std::ranges::any_of(stacks.rows,
                             [part](const StackRow& row) { return row.sizes[part] > 0; });
}

constexpr int kMostBarsShown = 128;
constexpr double kPlot = 760;  // pixels of the longest bar
constexpr double kEdge = 16, kRoom = 8;
constexpr double kTitleSize = 16, kTextSize = 12;

class StackPicture {
 public:
  explicit StackPicture(const Stacks& stacks)
      : stacks_(stacks),
        bars_(stack_bars(stacks, kMostBarsShown)),
        height_(bars_.bars.size() <= 32 ? 20 : 12) {
    double labels = 0, ends = 0;
    for (const StackBar& bar : bars_.bars) {
      labels = std::max(labels, text_width(bar.label, kTextSize));
      ends = std::max(ends, text_width(end_text(bar), kTextSize));
    }
    left_ = std::ceil(kEdge + labels + kRoom);
    width_ = left_ + kPlot + kRoom + ends + kEdge;
    scale_ = bars_.extent > 0 ? kPlot / bars_.extent : 0;
  }

  std::string draw() {
    std::string body = heading();
    body += legend();
    const double top = y_ += kTextSize + kRoom;
    for (const StackBar& bar : bars_.bars) body += row(bar);
    body += axis(top);
    if (!bars_.left_out.empty())
      body += svg_text(kEdge, y_ += kTextSize * 1.5, kTextSize, bars_.left_out);
    y_ += kEdge;
    return svg_document(width_, y_, stacks_.title, "", body);
  }

 private:
  std::string amount(double size) const { return strf("%.1f ", size) + stacks_.unit; }
  std::string end_text(const StackBar& bar) const {
    return amount(bar.total) + (bar.note.empty() ? "" : ", " + bar.note);
  }

  std::string heading() {
    y_ = kEdge;
    std::string out = svg_paragraph(kEdge, y_, kTitleSize, kTitleSize * 1.2, stacks_.title,
                                    (width_ - 2 * kEdge) / 1.1, " font-weight=\"bold\"");
    y_ += kRoom;
    return out;
  }

  std::string legend() {
    std::string out;
    double x = kEdge;
    for (std::size_t part = 0; part < stacks_.parts.size(); ++part) {
      if (!has_part(stacks_, part)) continue;
      const std::string& name = stacks_.parts[part].name;
      const double wide = 22 + text_width(name, kTextSize) + 2 * kRoom;
      if (x > kEdge && x + wide > width_ - kEdge) x = kEdge, y_ += kTextSize * 1.6;
      out += svg_rect(x, y_, 16, 13, fill(part)) + svg_text(x + 22, y_ + 11, kTextSize, name);
      x += wide;
    }
    y_ += kTextSize + kRoom;
    return out;
  }

  static std::string fill(std::size_t part) {
    return std::string("fill=\"") + kStackColours[part].paper + "\"";
  }

  std::string row(const StackBar& bar) {
    std::string out = svg_text(left_ - kRoom, y_ + height_ / 2 + 0.36 * kTextSize, kTextSize,
                               bar.label, " text-anchor=\"end\"");
    double sum = 0;
    for (std::size_t part = 0; part < bar.sizes.size(); ++part) {
      const double size = bar.sizes[part], wide = size * scale_;
      const double x = left_ + sum * scale_;
      sum += size;
      if (wide <= 0) continue;
      out += "<g><title>" + xml_escaped(stacks_.parts[part].name + " " + amount(size)) +
             "</title>" + svg_rect(x, y_, wide, height_, fill(part));
      const std::string number = strf("%.1f", size);
      if (height_ > kTextSize && text_width(number, kTextSize) + 4 < wide)
        out += svg_text(x + wide / 2, y_ + height_ / 2 + 0.36 * kTextSize, kTextSize, number,
                        std::string(" text-anchor=\"middle\"") +
                            (kStackColours[part].is_dark ? " fill=\"#fff\"" : ""));
      out += "</g>\n";
    }
    out += svg_text(left_ + kPlot + kRoom, y_ + height_ / 2 + 0.36 * kTextSize, kTextSize,
                    end_text(bar));
    y_ += height_ + 4;
    return out;
  }

  // Above the bars, where it can be read beside them.
  std::string axis(double top) const {
    if (stacks_.limit_name.empty()) return "";
    const std::string name = stacks_.limit_name + " " + amount(stacks_.limit);
    if (bars_.limit_is_far)
      return svg_text(left_ + kPlot, top - 8, kTextSize, name, " text-anchor=\"end\"");
    const double x = left_ + stacks_.limit * scale_;
    return "<path d=\"M" + svg_number(x) + " " + svg_number(top - 4) + "V" + svg_number(y_) +
           "\" stroke=\"#b00020\" stroke-width=\"2\" stroke-dasharray=\"6 3\"/>\n" +
           svg_text(
               x, top - 8, kTextSize, name,
               std::string(x - kEdge < text_width(name, kTextSize) ? "" : " text-anchor=\"end\"") +
                   " fill=\"#b00020\"");
  }

  const Stacks& stacks_;
  const StackBars bars_;
  const double height_;  // of a bar
  double left_ = 0, width_ = 0, scale_ = 0;
  double y_ = 0;  // how far down the picture is drawn
};

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
    if (!bars_.limit_is_far && !stacks.limit_name.empty()) limit_ = column(stacks.limit);
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
      const int part = cells[i];
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
    std::vector<int> cells(columns_, kNoPart);
    double sum = 0;
    for (std::size_t part = 0; part < bar.sizes.size(); ++part) {
      const int begin = column(sum), end = std::min(columns_, column(sum += bar.sizes[part]));
      for (int i = begin; i < end; ++i) cells[i] = static_cast<int>(part);
    }
    return cells;
  }

  std::string cell(int part) const {
    if (part == kNoPart) return " ";
    return style_.colour ? strf("\x1b[48;5;%dm \x1b[0m", kStackColours[part].terminal)
                         : std::string(1, stacks_.parts[part].letter);
  }

  // Inside a bar it has that one's colour behind it.
  std::string limit(int part) const {
    if (!style_.colour) return "|";
    const std::string back = part == kNoPart ? "" : strf(";48;5;%d", kStackColours[part].terminal);
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
    if (stacks_.limit_name.empty()) return flowed(items, 2, style_.width);
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

std::string svg(const Stacks& stacks) { return StackPicture(stacks).draw(); }

}  // namespace lockstep::draw
