// One lane of an SVG picture.
#pragma once

#include <string>
#include <vector>

#include "lockstep/draw/figure.h"

namespace lockstep::draw {

// Bars are drawn from x = 0, y = 0.
struct LaneScale {
  double per_second = 0;  // pixels
  double width = 0;       // pixels of the makespan
  double height = 0;
  double font = 0;  // of numbers; 0: none
  int chunks = 1;
  int columns = 0;  // 0: every bar is drawn; else so many parts of the width, each in one ink
};

// Pixels that a number needs inside its bar.
double label_width(int microbatch, double font);

std::string svg_bars(const Figure& figure, const Lane& lane, const LaneScale& scale);
std::string svg_labels(const Lane& lane, const LaneScale& scale);

// For a legend.
std::string svg_sample(Ink ink, int chunk, double width, double height);

// Styles and patterns that these refer to.
std::string svg_styles(int chunks);

}  // namespace lockstep::draw
