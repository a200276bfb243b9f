#include "lockstep/draw/svg.h"

#include <algorithm>
#include <cmath>

#include "lockstep/draw/axis.h"
#include "lockstep/draw/runs.h"
#include "lockstep/draw/svg_lane.h"
#include "lockstep/draw/svg_text.h"

namespace lockstep::draw {
namespace {

constexpr int kMostCoords = 128;
constexpr std::size_t kMostBars = 20'000;           // with a tooltip each
constexpr std::size_t kMostColumns = 400'000;       // over all lanes, when bars are merged
constexpr std::size_t kMostLevels = 2'000;          // of a curve that is drawn exactly
constexpr double kNarrowest = 900, kWidest = 2400;  // pixels of the plot
constexpr double kMargin = 16, kSpace = 8;
constexpr double kTitle = 18, kText = 12, kSmall = 9;
constexpr double kLine = 1.4;  // height of a line of text, in its size

// Sizes of a band, which shrink as bands become many.
struct Heights {
  double compute, lane, memory, gap, number;
};

Heights heights(std::size_t bands) {
  if (bands <= 16) return {24, 11, 30, 14, 11};
  if (bands <= 48) return {16, 9, 18, 10, 9};
  return {12, 9, 10, 6, 8};
}

std::string shifted(double x, double y, const std::string& more, const std::string& inside) {
  return "<g transform=\"translate(" + svg_number(x) + " " + svg_number(y) + ")\"" + more + ">\n" +
         inside + "</g>\n";
}

class Picture {
 public:
  explicit Picture(const Figure& figure)
      : figure_(figure),
        shown_(shown(figure.bands.size(), kMostCoords)),
        heights_(heights(shown_.size())),
        chunks_(chunks(figure)) {
    std::size_t bars = 0, lanes = 0;
    for (const std::size_t c : shown_) {
      const Band& band = figure.bands[c];
      lanes += band.lanes.size();
      for (const Lane& lane : band.lanes) {
        bars += lane.bars.size();
        const double name = band.lanes.size() > 1 ? text_width(lane.name, kSmall) : 0;
        names_ = std::max(names_, name);
      }
      peaks_ = std::max(peaks_, text_width(peak_text(band), kSmall));
    }
    coords_ = text_width(std::to_string(figure.bands.size()), kText);
    left_ = std::ceil(kMargin + coords_ + kSpace + std::max(names_, text_width("memory", kSmall)) +
                      kSpace);
    width_ = plot_width();
    per_second_ = figure.makespan.value > 0 ? width_ / figure.makespan.value : 0;
    if (bars > kMostBars)
      columns_ = static_cast<int>(std::min(static_cast<std::size_t>(width_), kMostColumns / lanes));
    total_ = left_ + width_ + kSpace + peaks_ + kMargin;
  }

  std::string draw() {
    std::string body = heading();
    body += legend();
    const double top = y_ += kSpace + kSmall * kLine;
    std::string bands;
    for (const std::size_t c : shown_) bands += band(figure_.bands[c]);
    y_ -= heights_.gap / 2;
    body += axis(top);  // behind the bands
    body += bands;
    body += notes();
    y_ += kMargin;
    return head() + body + "</svg>\n";
  }

 private:
  // Wide enough for the numbers of nine in ten passes, if that is possible.
  double plot_width() const {
    std::vector<double> needed;  // pixels per second
    for (const std::size_t c : shown_)
      for (const Run& run : runs(figure_.bands[c].lanes.front().bars))
        if (run.microbatch >= 0)
          needed.push_back(label_width(run.microbatch, heights_.number) /
                           (run.end - run.start).value);
    if (needed.empty()) return kNarrowest;
    const auto nth = needed.begin() + static_cast<std::ptrdiff_t>(needed.size() * 9 / 10);
    std::ranges::nth_element(needed, nth);
    return std::ceil(std::clamp(*nth * figure_.makespan.value * 1.01, kNarrowest, kWidest));
  }

  std::string peak_text(const Band& band) const { return "peak " + held_text(figure_, peak(band)); }

  std::string head() const {
    const std::string size = svg_number(total_) + " " + svg_number(y_);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + svg_number(total_) +
           "\" height=\"" + svg_number(y_) + "\" viewBox=\"0 0 " + size +
           "\" font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif\">\n"
           "<title>" +
           xml_escaped(figure_.title) + "</title>\n<desc>" +
           xml_escaped(figure_.shape + "; " + summary(figure_)) + "</desc>\n<style>\n" +
           svg_styles(chunks_) +
           ".tick{stroke:#ccc}\n.held{fill:#cfd8dc;stroke:#455a64}\n"
           "</style>\n<defs>\n"
           "<pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
           "<rect width=\"6\" height=\"6\" fill=\"#fafafa\"/>"
           "<path d=\"M-1 1l2-2M0 6l6-6M5 7l2-2\" stroke=\"#bbb\" stroke-width=\".8\"/></pattern>\n"
           "<pattern id=\"again\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\">"
           "<circle cx=\"1\" cy=\"1\" r=\".8\" fill=\"#fff\"/>"
           "<circle cx=\"3\" cy=\"3\" r=\".8\" fill=\"#fff\"/></pattern>\n</defs>\n" +
           svg_rect(0, 0, total_, y_, "fill=\"#fff\"");
  }

  std::string heading() {
    const double width = total_ - 2 * kMargin;
    y_ = kMargin;
    std::string out = paragraph(figure_.title, kTitle, width, " font-weight=\"bold\"");
    out += paragraph(figure_.shape, kText, width);
    return out += paragraph(summary(figure_), kText, width);
  }

  std::string paragraph(const std::string& text, double size, double width,
                        const std::string& more = "") {
    std::string out;
    constexpr double kBold = 1.1;  // letters of a heading are wider
    for (const std::string& line : wrapped(text, size * (more.empty() ? 1 : kBold), width)) {
      y_ += size * kLine;
      out += svg_text(kMargin, y_, size, line, more);
    }
    return out;
  }

  std::string legend() {
    constexpr double kSample = 22;
    double x = kMargin;
    y_ += 1.5 * kSpace;
    std::string out;
    const auto add = [&](const std::string& sample, const std::string& words) {
      const double width = kSample + 5 + text_width(words, kText);
      if (x > kMargin && x + width > total_ - kMargin) {
        x = kMargin;
        y_ += kText * kLine + 3;
      }
      out += shifted(x, y_, "", sample) + svg_text(x + kSample + 5, y_ + 11, kText, words);
      x += width + 2 * kSpace;
    };
    for (int i = 0; i < kNumInks; ++i) {
      const Ink ink = static_cast<Ink>(i);
      if (has_ink(figure_, ink)) add(svg_sample(ink, 0, kSample, 13), std::string(to_text(ink)));
    }
    if (chunks_ > 1)
      for (int chunk = 0; chunk < std::min(chunks_, 4); ++chunk)
        add(svg_sample(Ink::kForward, chunk, kSample, 13), "chunk " + std::to_string(chunk));
    add(svg_rect(0, 0, kSample, 13, "class=\"idle\""), "idle");
    const std::string unit = figure_.memory_unit == "B" ? "" : ", " + figure_.memory_unit;
    add("<path class=\"held\" d=\"M0 13V8H7V2H15V8H22V13\"/>\n", "memory held" + unit);
    y_ += kText * kLine;
    return out;
  }

  std::string band(const Band& band) {
    std::string out = svg_text(kMargin, y_ + heights_.compute / 2 + 0.36 * kText, kText,
                               std::to_string(band.coord.value), " font-weight=\"bold\"");
    for (const Lane& lane : band.lanes) {
      const bool is_compute = lane.kind == LaneKind::kCompute;
      const LaneScale scale = {.per_second = per_second_,
                               .width = width_,
                               .height = is_compute ? heights_.compute : heights_.lane,
                               .font = is_compute ? heights_.number : 0,
                               .chunks = chunks_,
                               .columns = columns_};
      if (band.lanes.size() > 1) out += name_at(lane.name, scale.height);
      out += svg_rect(left_, y_, width_, scale.height,
                      is_compute ? "class=\"idle\"" : "fill=\"#f2f2f2\"");
      out += shifted(left_, y_, "", svg_bars(figure_, lane, scale));
      out += shifted(left_, y_, " font-size=\"" + svg_number(scale.font) + "\"",
                     svg_labels(lane, scale));
      y_ += scale.height + 2;
    }
    return out + memory(band);
  }

  std::string name_at(const std::string& name, double height) const {
    return svg_text(left_ - kSpace, y_ + height / 2 + 0.36 * kSmall, kSmall, name,
                    " text-anchor=\"end\" fill=\"#444\"");
  }

  std::string memory(const Band& band) {
    std::string out = name_at("memory", heights_.memory);
    const double most = peak(figure_);
    if (most > 0) {
      const double scale = heights_.memory / most;
      std::string path = "M0 " + svg_number(heights_.memory);
      for (const Level& level : drawn_levels(band))
        path += "H" + svg_number(level.time.value * per_second_) + "V" +
                svg_number(heights_.memory - level.held * scale);
      path += "H" + svg_number(width_) + "V" + svg_number(heights_.memory) + "z";
      out += shifted(left_, y_, "", "<path class=\"held\" d=\"" + path + "\"/>\n");
    }
    out += svg_text(left_ + width_ + kSpace, y_ + heights_.memory / 2 + 0.36 * kSmall, kSmall,
                    peak_text(band), " fill=\"#444\"");
    y_ += heights_.memory + heights_.gap;
    return out;
  }

  // All, or the highest of each pixel.
  std::vector<Level> drawn_levels(const Band& band) const {
    if (band.memory.size() <= kMostLevels) return band.memory;
    std::vector<Level> result;
    double before = 0, pixel = -1;
    for (const Level& level : band.memory) {
      const double now = std::floor(level.time.value * per_second_);
      if (now > pixel) {
        if (pixel >= 0 && now > pixel + 1) result.push_back({{(pixel + 1) / per_second_}, before});
        result.push_back({{now / per_second_}, std::max(before, level.held)});
        pixel = now;
      }
      result.back().held = std::max(result.back().held, level.held);
      before = level.held;
    }
    return result;
  }

  std::string axis(double top) {
    constexpr double kPixelsPerTick = 70;
    const Axis axis = axis_of(figure_, static_cast<int>(width_ / kPixelsPerTick));
    std::string lines, labels;
    const bool is_tall = y_ - top > 700;
    for (const Tick& tick : axis.ticks) {
      const double x = left_ + tick.time.value * per_second_;
      lines += "M" + svg_number(x) + " " + svg_number(top) + "V" + svg_number(y_ + 4);
      const std::string centre = " text-anchor=\"middle\"";
      labels += svg_text(x, y_ + 6 + kSmall, kSmall, tick.label, centre);
      if (is_tall) labels += svg_text(x, top - 4, kSmall, tick.label, centre);
    }
    y_ += 8 + kSmall + kSmall * kLine;
    const std::string unit = axis.unit.empty() ? "time" : "time in " + axis.unit;
    labels += svg_text(left_ + width_ / 2, y_, kSmall, unit, " text-anchor=\"middle\"");
    return "<path class=\"tick\" d=\"" + lines + "\"/>\n" + labels;
  }

  std::string notes() {
    std::string text = shown_.size() < figure_.bands.size()
                           ? "Shown: " + shown_text(figure_.bands.size(), kMostCoords) + ". "
                           : "";
    if (columns_ > 0)
      text += "Bars narrower than " + time_text(figure_, {figure_.makespan.value / columns_}) +
              " share a column, in turns that keep each ink's part of the time.";
    return text.empty() ? "" : paragraph(text, kSmall, total_ - 2 * kMargin);
  }

  const Figure& figure_;
  std::vector<std::size_t> shown_;
  Heights heights_;
  int chunks_;
  int columns_ = 0;  // of a lane whose bars are merged; 0: none is
  double names_ = 0, peaks_ = 0, coords_ = 0;
  double left_ = 0, width_ = 0, total_ = 0;  // where the plot begins, its width, the picture's
  double per_second_ = 0;
  double y_ = 0;  // how far down the picture is drawn
};

}  // namespace

std::string svg(const Figure& figure) { return Picture(figure).draw(); }

}  // namespace lockstep::draw
