// Predicted against measured as a picture: one dot per pair, both axes logarithmic, a line where
// they are equal and a band of a given width around it. It stands alone, like svg.h.
#pragma once

#include <string>
#include <vector>

namespace lockstep::draw {

struct Dot {
  double x = 0, y = 0;  // above 0
  int series = 0;       // index into Scatter::series
  std::string label;    // tooltip
};

struct Scatter {
  std::string title, x_title, y_title;
  std::vector<std::string> series;  // at most 4; drawn in this order
  double band = 0.2;                // of the shaded diagonal: y within x (1 +- band)
  std::vector<Dot> dots;
};

std::string scatter_svg(const Scatter& scatter);

}  // namespace lockstep::draw
