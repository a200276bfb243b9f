// A figure as a picture: a band per pipeline rank with its lanes and, below them, the curve of what
// it held; idle compute is hatched. It stands alone: no script, no font or file from elsewhere.
//
// Inks differ in lightness as well as in hue, so the picture can be read in grey and by
// colour-blind people. A bar carries the number of its microbatch where that fits, and its op as a
// tooltip.
//
// Large steps: with more than 20,000 bars there are no tooltips, and every pixel of a lane, or
// every few where lanes are very many, shows one ink, such that over many each has its share
// (dealt). With more than 128 pipeline ranks every second (third, ...) is shown and the last. A
// line below the picture says either. So a file cannot exceed some 25 MB, and 131,072 bars on 128
// pipeline ranks take 2.2 MB.
#pragma once

#include <string>

#include "lockstep/draw/figure.h"

namespace lockstep::draw {

std::string svg(const Figure& figure);

}  // namespace lockstep::draw
