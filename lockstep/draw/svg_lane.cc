#include "lockstep/draw/svg_lane.h"

#include <map>
#include <utility>

#include "lockstep/draw/palette.h"
#include "lockstep/draw/runs.h"
#include "lockstep/draw/svg_text.h"

namespace lockstep::draw {
namespace {

constexpr double kLineHeight = 0.12;  // of a lane: the line at the foot of odd chunks
constexpr double kDotted = 0.25;      // of a lane: each edge of recompute; the number is between
constexpr double kOutlined = 3;       // narrower ones have no outline: it would be all one sees

std::string style_name(Ink ink, int chunk) {
  return std::string(1, letter(ink)) + std::to_string(chunk);
}

// Chunks are told apart where it matters, in compute.
int look_of(const Lane& lane, int chunk) { return lane.kind == LaneKind::kCompute ? chunk : 0; }

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
  std::string take() const {
    std::string out;
    if (!again_.empty()) out += "<path class=\"again\" d=\"" + again_ + "\"/>\n";
    if (!feet_.empty()) out += "<path class=\"foot\" d=\"" + feet_ + "\"/>\n";
    return out;
  }

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
  return path.empty() ? "" : "<path class=\"edge\" d=\"" + path + "\"/>\n";
}

std::string every_bar(const Figure& figure, const Lane& lane, const LaneScale& scale) {
  std::string out;
  Marks marks(scale);
  for (const Bar& bar : lane.bars) {
    const double left = bar.start.value * scale.per_second;
    const double width = bar.end.value * scale.per_second - left;
    const int chunk = look_of(lane, bar.chunk);
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
    const Run& speaks = all[static_cast<std::size_t>(run)];
    return std::pair(static_cast<int>(speaks.ink), look_of(lane, speaks.chunk));
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
    out += "<path class=\"" + style_name(static_cast<Ink>(key.first), key.second) + " thin\" d=\"" +
           path + "\"/>\n";
  return out + marks.take();
}

}  // namespace

double label_width(int microbatch, double font) {
  constexpr double kPadding = 2;
  return text_width(std::to_string(microbatch), font) + kPadding;
}

std::string svg_bars(const Figure& figure, const Lane& lane, const LaneScale& scale) {
  return scale.columns > 0 ? merged_bars(figure, lane, scale) : every_bar(figure, lane, scale);
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
    out += "<text class=\"n" + std::string(1, letter(run.ink)) + "\" x=\"" +
           svg_number((left + right) / 2) + "\" y=\"" + y + "\">" + std::to_string(run.microbatch) +
           "</text>\n";
  }
  return out;
}

std::string svg_sample(Ink ink, int chunk, double width, double height) {
  const LaneScale scale = {.height = height};
  Marks marks(scale);
  marks.add(ink, chunk, 0, width);
  return "<path class=\"" + style_name(ink, chunk) + "\" d=\"" + box(0, 0, width, height) +
         "\"/>\n" + marks.take();
}

std::string svg_styles(int chunks) {
  std::string css;
  for (int i = 0; i < kNumInks; ++i) {
    const Ink ink = static_cast<Ink>(i);
    for (int chunk = 0; chunk < chunks; ++chunk)
      css += "." + style_name(ink, chunk) + "{fill:" + colour_of(ink, chunk, chunks) +
             ";stroke:#000;stroke-width:.4;stroke-opacity:.35}\n";
    css += ".n" + std::string(1, letter(ink)) + "{fill:" + text_colour_on(ink) +
           ";text-anchor:middle}\n";
  }
  css +=
      ".thin{stroke:none}\n.edge{fill:none;stroke:#222;stroke-width:.7;pointer-events:none}\n.foot{"
      "fill:#000;fill-opacity:.5;pointer-events:none}\n"
      ".again{fill:url(#again);pointer-events:none}\n"
      ".idle{fill:url(#idle)}\n";
  return css;
}

}  // namespace lockstep::draw
