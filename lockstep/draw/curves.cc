#include "lockstep/draw/curves.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

#include "lockstep/base/units.h"
#include "lockstep/draw/svg_text.h"

namespace lockstep::draw {
namespace {

constexpr double kChartWidth = 560, kChartHeight = 300, kChartLeft = 64, kChartTop = 56,
                 kChartRight = 18, kChartBottom = 38;
constexpr double kChartAcross = kChartWidth - kChartLeft - kChartRight,
                 kChartUp = kChartHeight - kChartTop - kChartBottom;
constexpr double kLogFrom = 30;
// Okabe and Ito, darkened where they are lines on white; they differ in lightness too.
constexpr const char* kLineColours[] = {"#00548c", "#d55e00", "#008a64",
                                        "#a8578a", "#000000", "#8a6d3b"};
constexpr const char* kInk = "#1b2028";

const char* colour_of(const Curve& curve) {
  return kLineColours[static_cast<std::size_t>(curve.colour) % std::size(kLineColours)];
}

struct Scale {
  double low = 0, high = 1;
  bool is_log = false;
  double part(double value) const {
    if (is_log) return std::log(value / low) / std::log(high / low);
    return (value - low) / (high - low);
  }
};

// Three to seven round numbers.
std::vector<double> ticks(const Scale& scale) {
  std::vector<double> all;
  if (scale.is_log) {
    const bool is_long = scale.high / scale.low > 1e3;
    for (double decade = std::pow(10, std::floor(std::log10(scale.low))); decade <= scale.high;
         decade *= 10)
      for (const double times : {1.0, 2.0, 5.0})
        if (const double value = decade * times;
            value >= scale.low && value <= scale.high && (times == 1.0 || !is_long))
          all.push_back(value);
    return all;
  }
  const double rough = (scale.high - scale.low) / 5;
  const double decade = std::pow(10, std::floor(std::log10(rough)));
  const double digit = rough / decade;
  const double step = decade * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
  for (double i = std::ceil(scale.low / step - 1e-9); i * step <= scale.high + 1e-9 * step; ++i)
    all.push_back(i * step + 0.0);  // no -0
  return all;
}

std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size >= 1e6) return strf("%.4gM", value / 1e6);
  return size >= 1e4 ? strf("%.4gk", value / 1e3) : strf("%.4g", value);
}

class Chart {
 public:
  explicit Chart(const Curves& curves) : curves_(curves) {
    double low = kMost, high = -kMost, first = kMost, last = -kMost;
    for (const Curve& curve : curves.curves)
      for (const CurvePoint& point : curve.points) {
        first = std::min(first, point.x), last = std::max(last, point.x);
        if (!std::isfinite(point.y)) continue;
        low = std::min(low, point.y), high = std::max(high, point.y);
      }
    is_empty_ = first > last;
    if (low > high) low = 0, high = 1;
    y_.is_log = curves.may_be_log && low > 0 && high > kLogFrom * low;
    if (curves.from_zero && !y_.is_log) low = std::min(low, 0.0);
    if (low == high) low -= std::abs(low) / 2, high += low == high ? 1 : std::abs(high) / 2;
    const double room = y_.is_log ? std::pow(high / low, 0.04) : 0.05 * (high - low);
    y_.low = y_.is_log ? low / room : low - (curves.from_zero && low == 0 ? 0 : room);
    y_.high = y_.is_log ? high * room : high + room;
    if (!is_empty_) x_ = {first, last > first ? last : first + 1};
  }

  std::string svg() const {
    std::string out =
        svg_text(kChartLeft, 22, 15, curves_.title + (y_.is_log ? " (logarithmic)" : ""),
                 strf(" font-weight=\"600\" fill=\"%s\"", kInk));
    out += legend() + axes();
    if (is_empty_)
      out += svg_text(kChartLeft + kChartAcross / 2, kChartTop + kChartUp / 2, 13, "no step yet",
                      " text-anchor=\"middle\" fill=\"#59636f\"");
    for (const double mark : curves_.marks)
      out += "<path d=\"M" + svg_number(x(mark)) + " " + svg_number(kChartTop) + " V" +
             svg_number(kChartTop + kChartUp) +
             "\" stroke=\"#8a929c\" stroke-dasharray=\"2 3\"><title>resumed behind step " +
             strf("%.0f", mark) + "</title></path>\n";
    for (const Curve& curve : curves_.curves) out += line(curve);
    for (const Curve& curve : curves_.curves) out += dots(curve);
    return svg_document(kChartWidth, kChartHeight, curves_.title, "", out);
  }

 private:
  static constexpr double kMost = std::numeric_limits<double>::max();

  double x(double value) const { return kChartLeft + x_.part(value) * kChartAcross; }
  double y(double value) const {
    return std::isfinite(value) ? kChartTop + kChartUp - y_.part(value) * kChartUp : kChartTop + 5;
  }

  std::string axes() const {
    std::string out;
    for (const double tick : ticks(y_)) {
      out += "<path d=\"M" + svg_number(kChartLeft) + " " + svg_number(y(tick)) + " H" +
             svg_number(kChartLeft + kChartAcross) + "\" stroke=\"#e3e7eb\"/>\n";
      out += svg_text(kChartLeft - 8, y(tick) + 4, 12, tick_text(tick),
                      " text-anchor=\"end\" fill=\"#444c56\"");
    }
    for (const double tick : ticks(x_)) {
      if (tick != std::floor(tick)) continue;
      out += svg_text(x(tick), kChartTop + kChartUp + 17, 12, tick_text(tick),
                      " text-anchor=\"middle\" fill=\"#444c56\"");
    }
    out += svg_text(kChartLeft + kChartAcross, kChartTop + kChartUp + 33, 12, "step",
                    " text-anchor=\"end\" fill=\"#444c56\"");
    return out + "<path d=\"M" + svg_number(kChartLeft) + " " + svg_number(kChartTop + kChartUp) +
           " H" + svg_number(kChartLeft + kChartAcross) + "\" stroke=\"#8a929c\"/>\n";
  }

  std::string legend() const {
    std::string out;
    double at = kChartLeft;
    for (const Curve& curve : curves_.curves) {
      if (curve.name.empty()) continue;
      out += "<path d=\"M" + svg_number(at) + " 38 h18\" stroke=\"" + colour_of(curve) +
             "\" stroke-width=\"2.5\"" + (curve.has_dots ? " stroke-dasharray=\"4 3\"" : "") +
             "/>\n" + svg_text(at + 23, 42, 12, curve.name, strf(" fill=\"%s\"", kInk));
      at += 37 + text_width(curve.name, 12);
    }
    return out;
  }

  std::string line(const Curve& curve) const {
    std::string path;
    bool is_broken = true;
    for (const CurvePoint& point : curve.points) {
      const bool is_finite = std::isfinite(point.y);
      if (is_finite)
        path += (is_broken ? "M" : "L") + svg_number(x(point.x)) + " " + svg_number(y(point.y));
      is_broken = !is_finite;
    }
    return "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + colour_of(curve) +
           "\" stroke-width=\"1.6\" stroke-linejoin=\"round\"" +
           (curve.has_dots ? " stroke-dasharray=\"4 3\"" : "") + "/>\n";
  }

  // A point that nothing shows is there for its tooltip.
  std::string dots(const Curve& curve) const {
    const bool is_seen = curve.has_dots || curve.points.size() == 1;
    std::string out = strf("<g fill=\"%s\" fill-opacity=\"%d\">\n", colour_of(curve), is_seen);
    for (const CurvePoint& point : curve.points) {
      const std::string words = "<title>" +
                                xml_escaped(curve.name.empty() ? "" : curve.name + ", ") + "step " +
                                strf("%.0f", point.x) + ": " + strf("%.6g", point.y) + "</title>";
      const std::string numbers =
          " data-x=\"" + shortest(point.x) + "\" data-y=\"" + shortest(point.y) + "\"";
      if (std::isfinite(point.y))
        out += "<circle cx=\"" + svg_number(x(point.x)) + "\" cy=\"" + svg_number(y(point.y)) +
               "\" r=\"" + (is_seen ? "3" : "4") + "\"" + numbers + ">" + words + "</circle>\n";
      else
        out += "<path d=\"M" + svg_number(x(point.x) - 4) + " " + svg_number(y(point.y) - 4) +
               " l8 8 m0 -8 l-8 8\" stroke=\"#b00020\" stroke-width=\"2\"" + numbers + ">" + words +
               "</path>\n";
    }
    return out + "</g>\n";
  }

  const Curves& curves_;
  Scale x_, y_;
  bool is_empty_ = true;
};

}  // namespace

std::string curves_svg(const Curves& curves) { return Chart(curves).svg(); }

std::vector<CurvePoint> thinned(const std::vector<CurvePoint>& points, std::size_t most) {
  if (points.size() <= most) return points;
  const std::size_t inner = points.size() - 2, groups = (most - 2) / 3;
  std::vector<CurvePoint> kept = {points.front()};
  for (std::size_t group = 0; group < groups; ++group) {
    const std::size_t begin = 1 + group * inner / groups, end = 1 + (group + 1) * inner / groups;
    std::vector<std::size_t> chosen;
    const auto best = [&](const auto& is_better) {
      std::size_t found = end;
      for (std::size_t i = begin; i < end; ++i)
        if (std::isfinite(points[i].y) && (found == end || is_better(points[i].y, points[found].y)))
          found = i;
      if (found < end) chosen.push_back(found);
    };
    best(std::less<>()), best(std::greater<>());
    for (std::size_t i = begin; i < end; ++i)
      if (!std::isfinite(points[i].y)) {
        chosen.push_back(i);
        break;
      }
    std::ranges::sort(chosen);
    chosen.erase(std::ranges::unique(chosen).begin(), chosen.end());
    for (const std::size_t i : chosen) kept.push_back(points[i]);
  }
  kept.push_back(points.back());
  return kept;
}

}  // namespace lockstep::draw
