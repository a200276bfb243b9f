#include <algorithm>
#include <cmath>

#include "lockstep/base/units.h"
#include "lockstep/draw/stack_bars.h"
#include "lockstep/draw/svg_text.h"

namespace lockstep::draw {
namespace {

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
    const std::string size = svg_number(width_) + " " + svg_number(y_);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + svg_number(width_) +
           "\" height=\"" + svg_number(y_) + "\" viewBox=\"0 0 " + size +
           "\" font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif\">\n"
           "<title>" +
           xml_escaped(stacks_.title) + "</title>\n" + svg_rect(0, 0, width_, y_, "fill=\"#fff\"") +
           body + "</svg>\n";
  }

 private:
  std::string amount(double size) const { return strf("%.1f ", size) + stacks_.unit; }
  std::string end_text(const StackBar& bar) const {
    return amount(bar.total) + (bar.note.empty() ? "" : ", " + bar.note);
  }

  std::string heading() {
    std::string out;
    y_ = kEdge;
    for (const std::string& line : wrapped(stacks_.title, kTitleSize * 1.1, width_ - 2 * kEdge))
      out += svg_text(kEdge, y_ += kTitleSize * 1.2, kTitleSize, line, " font-weight=\"bold\"");
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
    return std::string("fill=\"") + stack_colour(part).paper + "\"";
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
                            (stack_colour(part).is_dark ? " fill=\"#fff\"" : ""));
      out += "</g>\n";
    }
    out += svg_text(left_ + kPlot + kRoom, y_ + height_ / 2 + 0.36 * kTextSize, kTextSize,
                    end_text(bar));
    y_ += height_ + 4;
    return out;
  }

  // Above the bars, where it can be read beside them.
  std::string axis(double top) const {
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

}  // namespace

std::string svg(const Stacks& stacks) { return StackPicture(stacks).draw(); }

}  // namespace lockstep::draw
