#include "lockstep/draw/scatter.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/units.h"
#include "lockstep/draw/svg_text.h"

namespace lockstep::draw {
namespace {

constexpr double kSide = 460, kLeft = 70, kTop = 64, kRight = 24, kBottom = 86;
// Okabe and Ito; they differ in lightness too.
constexpr const char* kDotColours[] = {"#9ab8cc", "#00548c", "#d55e00", "#000000"};

// Decades that hold every dot.
struct LogRange {
  double low = 0, high = 1;
  double place(double value) const { return (std::log10(value) - low) / (high - low) * kSide; }
};

LogRange range_of(const Scatter& scatter) {
  LogRange range{1e30, -1e30};
  for (const Dot& dot : scatter.dots)
    for (const double value : {dot.x, dot.y}) {
      range.low = std::min(range.low, std::floor(std::log10(value)));
      range.high = std::max(range.high, std::ceil(std::log10(value)));
    }
  if (scatter.dots.empty() || range.low >= range.high) return {0, 1};
  return range;
}

std::string text_at(double x, double y, const char* anchor, double size, std::string_view text,
                    const std::string& more = "") {
  return svg_text(x, y, size, text, strf(" text-anchor=\"%s\"", anchor) + more);
}

std::string point(double x, double y) { return svg_number(x) + " " + svg_number(y); }

std::string axes(const Scatter& scatter, const LogRange& range) {
  std::string out;
  for (double decade = range.low; decade <= range.high; ++decade) {
    const double at = range.place(std::pow(10, decade));
    out += "<path d=\"M" + point(kLeft + at, kTop) + " V" + svg_number(kTop + kSide) + " M" +
           point(kLeft, kTop + kSide - at) + " H" + svg_number(kLeft + kSide) +
           "\" stroke=\"#ddd\"/>\n";
    const std::string label = strf("%g", std::pow(10, decade));
    out += text_at(kLeft + at, kTop + kSide + 18, "middle", 12, label);
    out += text_at(kLeft - 8, kTop + kSide - at + 4, "end", 12, label);
  }
  const double middle = kTop + kSide / 2;
  out += text_at(kLeft + kSide / 2, kTop + kSide + 40, "middle", 13, scatter.x_title);
  out += text_at(20, middle, "middle", 13, scatter.y_title,
                 " transform=\"rotate(-90 " + point(20, middle) + ")\"");
  return out;
}

std::string diagonal(const Scatter& scatter, const LogRange& range) {
  const double up = std::log10(1 + scatter.band) / (range.high - range.low) * kSide;
  const double down = -std::log10(1 - scatter.band) / (range.high - range.low) * kSide;
  const double left = kLeft, right = kLeft + kSide, bottom = kTop + kSide;
  return strf(
             "<clipPath id=\"c\"><rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\"/></clipPath>\n",
             left, kTop, kSide, kSide) +
         "<path clip-path=\"url(#c)\" d=\"M" + point(left, bottom - up) + " L" +
         point(right, kTop - up) + " L" + point(right, kTop + down) + " L" +
         point(left, bottom + down) + " Z\" fill=\"#f0e442\" fill-opacity=\"0.35\"/>\n<path d=\"M" +
         point(left, bottom) + " L" + point(right, kTop) + "\" stroke=\"#666\"/>\n";
}

}  // namespace

std::string scatter_svg(const Scatter& scatter) {
  const LogRange range = range_of(scatter);
  std::string out;
  out += text_at(kLeft, 28, "start", 16, scatter.title);
  out += axes(scatter, range) + diagonal(scatter, range);
  for (std::size_t series = 0; series < scatter.series.size(); ++series) {
    const char* colour = kDotColours[series % std::size(kDotColours)];
    out += strf("<g fill=\"%s\" fill-opacity=\"0.7\">\n", colour);
    for (const Dot& dot : scatter.dots) {
      if (dot.series != static_cast<int>(series)) continue;
      out += strf("<circle cx=\"%s\" cy=\"%s\" r=\"2.6\"><title>",
                  svg_number(kLeft + range.place(dot.x)).c_str(),
                  svg_number(kTop + kSide - range.place(dot.y)).c_str()) +
             xml_escaped(dot.label) + "</title></circle>\n";
    }
    out += "</g>\n";
    const double x = kLeft + 12, y = kTop + 18 + 18 * static_cast<double>(series);
    out += strf("<circle cx=\"%g\" cy=\"%g\" r=\"4\" fill=\"%s\"/>\n", x, y - 4, colour);
    out += text_at(x + 10, y, "start", 12, scatter.series[series]);
  }
  out += text_at(kLeft, kTop + kSide + 66, "start", 11,
                 strf("one dot per run; the shaded band is +-%.0f %%", 100 * scatter.band));
  return svg_document(kLeft + kSide + kRight, kTop + kSide + kBottom, scatter.title, "", out);
}

}  // namespace lockstep::draw
