#include "lockstep/draw/terminal.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/check.h"
#include "lockstep/draw/axis.h"
#include "lockstep/draw/runs.h"
#include "lockstep/draw/terminal_row.h"
#include "lockstep/draw/terminal_text.h"

namespace lockstep::draw {
namespace {

constexpr int kLeastWidth = 20;
constexpr int kWidthForPeaks = 60;  // below, every column is needed for time

class Drawing {
 public:
  Drawing(const Figure& figure, const TerminalStyle& style)
      : figure_(figure), style_(style), shown_(shown(figure.bands.size(), style.most_coords)) {
    LS_CHECK(style.width >= kLeastWidth && style.most_coords >= 2, "a drawing of ", style.width,
             " columns and ", style.most_coords, " coordinates");
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
      text += std::string(static_cast<std::size_t>(label_ + 1), ' ');
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
      line.resize(static_cast<std::size_t>(column), ' ');
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
    for (int i = 0; i < kNumInks; ++i) {
      const Ink ink = static_cast<Ink>(i);
      if (ink == Ink::kTransfer || !has_ink(figure_, ink)) continue;
      add(style_.colour ? coloured_sample(ink, 0) : plain_sample(ink), to_text(ink));
    }
    add(idle_sample(style_.colour), "idle");
    const auto note = [&](const std::string& words) {
      items.push_back({words, static_cast<int>(words.size())});
    };
    if (has_chunks) note(style_.colour ? "lighter: odd chunks" : "lower case: odd chunks");
    if (peak_ >= 0)
      note("right: peak" +
           (figure_.memory_unit == "B" ? "" : ", " + printable(figure_.memory_unit)));
    return flowed(items, 3, style_.width);
  }

  const Figure& figure_;
  const TerminalStyle& style_;
  std::vector<std::size_t> shown_;
  int label_ = 1;    // columns of the number of a coordinate
  int peak_ = 1;     // columns of what is held at most; -1: not shown
  int columns_ = 0;  // columns of time
};

}  // namespace

std::string terminal(const Figure& figure, const TerminalStyle& style) {
  return Drawing(figure, style).draw();
}

}  // namespace lockstep::draw
