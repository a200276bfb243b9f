// Curves over the steps of a run as a picture. It stands alone, like svg.h; every point has its
// numbers as a tooltip, and as `data-x` and `data-y` with all their digits.
#pragma once

#include <string>
#include <vector>

namespace lockstep::draw {

struct CurvePoint {
  double x = 0, y = 0;  // y that is not finite is a cross at the top, and the curve is broken there
};

struct Curve {
  std::string name;                     // in the legend; empty: not there
  int colour = 0;                       // of six; others begin again
  bool has_dots = false;                // dashes between dots, for what is known at few steps
  std::vector<CurvePoint> points = {};  // ascending by x
};

struct Curves {
  std::string title;
  bool from_zero = false;   // the axis begins at 0; else where the lowest point is
  bool may_be_log = false;  // the axis is logarithmic where values differ by more than 30 times
  std::vector<Curve> curves = {};
  std::vector<double> marks = {};  // lines across, where something else began
};

std::string curves_svg(const Curves& curves);

// At most `most` points in place of more: of equally many beside each other the lowest and the
// highest, and one that is not finite; the first and the last. All of them are points of the curve.
// REQUIRES: most > 4.
std::vector<CurvePoint> thinned(const std::vector<CurvePoint>& points, std::size_t most);

}  // namespace lockstep::draw
