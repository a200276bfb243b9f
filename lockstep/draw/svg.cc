#include "lockstep/draw/svg.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/draw/svg_text.h"

namespace lockstep::draw {
namespace {

constexpr double kLightest = 0.3;  // share of white in the last chunk

// "#00548c". The first chunk has the ink itself, later ones are lighter.
// REQUIRES: 0 <= chunk < chunks.
std::string colour_of(Ink ink, int chunk, int chunks) {
  const double white = chunks > 1 ? kLightest * chunk / (chunks - 1) : 0;
  std::string text = "#";
  for (const int part : look_of(ink).rgb)
    text += strf("%02x", static_cast<int>(std::lround(part + (255 - part) * white)));
  return text;
}

// Of one lane. Bars are drawn from x = 0, y = 0.
struct LaneScale {
  double per_second = 0;  // pixels
  double width = 0;       // pixels of the makespan
  double height = 0;
  double font = 0;  // of numbers; 0: none
  int columns = 0;  // 0: every bar is drawn; else so many parts of the width, each in one ink
};

constexpr double kLineHeight = 0.12;  // of a lane: the line at the foot of odd chunks
constexpr double kDotted = 0.25;      // of a lane: each edge of recompute; the number is between
constexpr double kOutlined = 3;       // narrower ones have no outline: it would be all one sees

std::string style_name(Ink ink, int chunk) { return strf("%c%d", letter(ink), chunk); }

// Nothing where there is nothing to draw.
std::string path_of(const std::string& name, const std::string& path) {
  return path.empty() ? "" : "<path class=\"" + name + "\" d=\"" + path + "\"/>\n";
}

// Chunks are told apart where it matters, in compute.
int tint_of(const Lane& lane, int chunk) { return lane.kind == LaneKind::kCompute ? chunk : 0; }

std::string tooltip(const Figure& figure, const Bar& bar) {
  std::string text = bar.name + ": " + std::string(to_text(bar.ink));
  if (bar.unit >= 0) text += ", unit " + std::to_string(bar.unit);
  if (bar.stage >= 0) text += ", stage " + std::to_string(bar.stage);
  if (bar.microbatch >= 0) text += ", microbatch " + std::to_string(bar.microbatch);
  return text + "; " + time_text(figure, bar.start) + " to " + time_text(figure, bar.end);
}

std::string box(double left, double top, double width, double height) {
  const std::string across = svg_number(width);
  return "M" + svg_number(left) + " " + svg_number(top) + "h" + across + "v" + svg_number(height) +
         "h-" + across + "z";
}

// Marks that lie over bars, so that chunks and recompute can be told without colour.
class Marks {
 public:
  explicit Marks(const LaneScale& scale) : scale_(scale) {}

  void add(Ink ink, int chunk, double left, double width) {
    const double line = scale_.height * kLineHeight;
    if (chunk % 2 == 1) feet_ += box(left, scale_.height - line, width, line);
    if (ink != Ink::kRecompute) return;
    const double edge = scale_.height * kDotted;
    again_ += box(left, 0, width, edge) + box(left, scale_.height - edge, width, edge);
  }
  std::string take() const { return path_of("again", again_) + path_of("foot", feet_); }

 private:
  const LaneScale& scale_;
  std::string feet_, again_;
};

// Of whole passes; the units within one are divided by faint lines.
std::string outlines(const Lane& lane, const LaneScale& scale) {
  std::string path;
  for (const Run& run : runs(lane.bars)) {
    const double left = run.start.value * scale.per_second;
    const double width = run.end.value * scale.per_second - left;
    if (width >= kOutlined) path += box(left, 0, width, scale.height);
  }
  return path_of("edge", path);
}

std::string every_bar(const Figure& figure, const Lane& lane, const LaneScale& scale) {
  std::string out;
  Marks marks(scale);
  for (const Bar& bar : lane.bars) {
    const double left = bar.start.value * scale.per_second;
    const double width = bar.end.value * scale.per_second - left;
    const int chunk = tint_of(lane, bar.chunk);
    out += "<rect class=\"" + style_name(bar.ink, chunk) + (width < kOutlined ? " thin" : "") +
           "\" x=\"" + svg_number(left) + "\" width=\"" + svg_number(width) + "\" height=\"" +
           svg_number(scale.height) + "\"><title>" + xml_escaped(tooltip(figure, bar)) +
           "</title></rect>\n";
    marks.add(bar.ink, chunk, left, width);
  }
  return out + marks.take() + outlines(lane, scale);
}

std::string merged_bars(const Figure& figure, const Lane& lane, const LaneScale& scale) {
  const std::vector<Run> all = runs(lane.bars);
  const std::vector<int> speaker = dealt(all, figure.makespan, scale.columns);
  const double column = scale.width / scale.columns;
  const auto look = [&](std::size_t i) {
    const int run = speaker[i];
    if (run < 0) return std::pair(-1, 0);
    const Run& speaks = all[run];
    return std::pair(static_cast<int>(speaks.ink), tint_of(lane, speaks.chunk));
  };
  std::map<std::pair<int, int>, std::string> paths;
  Marks marks(scale);
  for (std::size_t begin = 0; begin < speaker.size();) {
    std::size_t end = begin;
    while (end < speaker.size() && look(end) == look(begin)) ++end;
    if (const auto [ink, chunk] = look(begin); ink >= 0) {
      const double left = static_cast<double>(begin) * column;
      const double width = static_cast<double>(end - begin) * column;
      paths[{ink, chunk}] += box(left, 0, width, scale.height);
      marks.add(static_cast<Ink>(ink), chunk, left, width);
    }
    begin = end;
  }
  std::string out;
  for (const auto& [key, path] : paths)
    out += path_of(style_name(static_cast<Ink>(key.first), key.second) + " thin", path);
  return out + marks.take();
}

// Pixels that a number needs inside its bar.
double label_width(int microbatch, double font) {
  constexpr double kPadding = 2;
  return text_width(std::to_string(microbatch), font) + kPadding;
}

std::string svg_labels(const Lane& lane, const LaneScale& scale) {
  std::string out;
  if (scale.font <= 0) return out;
  constexpr double kBaseline = 0.36;  // of a digit, below its middle
  const std::string y = svg_number(scale.height / 2 + kBaseline * scale.font);
  for (const Run& run : runs(lane.bars)) {
    const double left = run.start.value * scale.per_second;
    const double right = run.end.value * scale.per_second;
    if (run.microbatch < 0 || right - left < label_width(run.microbatch, scale.font)) continue;
    out += strf("<text class=\"n%c\" x=\"%s\" y=\"%s\">%d</text>\n", letter(run.ink),
                svg_number((left + right) / 2).c_str(), y.c_str(), run.microbatch);
  }
  return out;
}

// For a legend.
std::string svg_sample(Ink ink, int chunk, double width, double height) {
  const LaneScale scale = {.height = height};
  Marks marks(scale);
  marks.add(ink, chunk, 0, width);
  return path_of(style_name(ink, chunk), box(0, 0, width, height)) + marks.take();
}

// Styles and patterns that these refer to.
std::string svg_styles(int chunks) {
  std::string css;
  for (int i = 0; i < kNumInks; ++i) {
    const Ink ink = static_cast<Ink>(i);
    for (int chunk = 0; chunk < chunks; ++chunk)
      css += "." + style_name(ink, chunk) + "{fill:" + colour_of(ink, chunk, chunks) +
             ";stroke:#000;stroke-width:.4;stroke-opacity:.35}\n";
    css += strf(".n%c{fill:%s;text-anchor:middle}\n", letter(ink),
                look_of(ink).is_dark ? "#fff" : "#000");
  }
  css +=
      ".thin{stroke:none}\n.edge{fill:none;stroke:#222;stroke-width:.7;pointer-events:none}\n.foot{"
      "fill:#000;fill-opacity:.5;pointer-events:none}\n"
      ".again{fill:url(#again);pointer-events:none}\n"
      ".idle{fill:url(#idle)}\n";
  return css;
}

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
    double names = text_width("memory", kSmall), peaks = 0;
    for (const std::size_t c : shown_) {
      const Band& band = figure.bands[c];
      lanes += band.lanes.size();
      for (const Lane& lane : band.lanes) {
        bars += lane.bars.size();
        if (band.lanes.size() > 1) names = std::max(names, text_width(lane.name, kSmall));
      }
      peaks = std::max(peaks, text_width(peak_text(band), kSmall));
    }
    const double coords = text_width(std::to_string(figure.bands.size()), kText);
    left_ = std::ceil(kMargin + coords + kSpace + names + kSpace);
    width_ = plot_width();
    per_second_ = figure.makespan.value > 0 ? width_ / figure.makespan.value : 0;
    if (bars > kMostBars)
      columns_ = static_cast<int>(std::min(static_cast<std::size_t>(width_), kMostColumns / lanes));
    total_ = left_ + width_ + kSpace + peaks + kMargin;
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
    return svg_document(total_, y_, figure_.title, head(), body);
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
    return "<desc>" + xml_escaped(figure_.shape + "; " + summary(figure_)) + "</desc>\n<style>\n" +
           svg_styles(chunks_) +
           ".tick{stroke:#ccc}\n.held{fill:#cfd8dc;stroke:#455a64}\n"
           "</style>\n<defs>\n"
           "<pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
           "<rect width=\"6\" height=\"6\" fill=\"#fafafa\"/>"
           "<path d=\"M-1 1l2-2M0 6l6-6M5 7l2-2\" stroke=\"#bbb\" stroke-width=\".8\"/></pattern>\n"
           "<pattern id=\"again\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\">"
           "<circle cx=\"1\" cy=\"1\" r=\".8\" fill=\"#fff\"/>"
           "<circle cx=\"3\" cy=\"3\" r=\".8\" fill=\"#fff\"/></pattern>\n</defs>\n";
  }

  std::string heading() {
    constexpr double kBold = 1.1;  // letters of a heading are wider
    y_ = kMargin;
    std::string out = svg_paragraph(kMargin, y_, kTitle, kTitle * kLine, figure_.title,
                                    (total_ - 2 * kMargin) / kBold, " font-weight=\"bold\"");
    out += paragraph(figure_.shape, kText);
    return out += paragraph(summary(figure_), kText);
  }

  std::string paragraph(const std::string& text, double size) {
    return svg_paragraph(kMargin, y_, size, size * kLine, text, total_ - 2 * kMargin);
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
    for (const Ink ink : inks(figure_))
      add(svg_sample(ink, 0, kSample, 13), std::string(to_text(ink)));
    if (chunks_ > 1)
      for (int chunk = 0; chunk < std::min(chunks_, 4); ++chunk)
        add(svg_sample(Ink::kForward, chunk, kSample, 13),
            "virtual stage " + std::to_string(chunk));
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
                               .columns = columns_};
      if (band.lanes.size() > 1) out += name_at(lane.name, scale.height);
      out += svg_rect(left_, y_, width_, scale.height,
                      is_compute ? "class=\"idle\"" : "fill=\"#f2f2f2\"");
      out += shifted(
          left_, y_, "",
          columns_ > 0 ? merged_bars(figure_, lane, scale) : every_bar(figure_, lane, scale));
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
      out += shifted(left_, y_, "", path_of("held", path));
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
    return path_of("tick", lines) + labels;
  }

  std::string notes() {
    std::string text = shown_.size() < figure_.bands.size()
                           ? "Shown: " + shown_text(figure_.bands.size(), kMostCoords) + ". "
                           : "";
    if (columns_ > 0)
      text += "Bars narrower than " + time_text(figure_, {figure_.makespan.value / columns_}) +
              " share a column, in turns that keep each ink's part of the time.";
    return text.empty() ? "" : paragraph(text, kSmall);
  }

  const Figure& figure_;
  std::vector<std::size_t> shown_;
  Heights heights_;
  int chunks_;
  int columns_ = 0;                          // of a lane whose bars are merged; 0: none is
  double left_ = 0, width_ = 0, total_ = 0;  // where the plot begins, its width, the picture's
  double per_second_ = 0;
  double y_ = 0;  // how far down the picture is drawn
};

}  // namespace

std::string svg(const Figure& figure) { return Picture(figure).draw(); }

}  // namespace lockstep::draw
