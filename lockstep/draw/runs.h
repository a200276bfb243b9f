// Reductions of a figure that does not fit: bars that belong together, bars per column, coordinates
// that are shown.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/draw/figure.h"

namespace lockstep::draw {

// Bars that touch and show the same pass: the units of one stage and microbatch. They share a label.
struct Run {
  Seconds start;
  Seconds end;
  Ink ink = Ink::kOther;
  int microbatch = -1;
  int chunk = 0;
};
std::vector<Run> runs(const std::vector<Bar>& bars);

// For each of `columns` equal parts of [0, span): the run that speaks for it, or -1 for idle. A
// column that several share goes to the one with the most time in it, plus what it missed in shared
// columns before; so over many columns each ink, chunk and idle time has its share, however narrow
// its bars. A column that one has alone is that one's, and what was missed before it is forgotten.
// REQUIRES: span > 0 where there are runs; runs ascend and do not overlap.
std::vector<int> dealt(std::span<const Run> runs, Seconds span, int columns);

// All of `count` coordinates, or every second (third, ...) and the last, at most `most` + 1.
std::vector<std::size_t> shown(std::size_t count, int most);
// "every 4th of 128 coordinates, and the last"; empty when all are shown.
std::string shown_text(std::size_t count, int most);

int chunks(const Figure& figure);  // most of any bar
bool has_ink(const Figure& figure, Ink ink);

}  // namespace lockstep::draw
