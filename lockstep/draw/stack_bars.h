// What both forms of stacks.h draw: the bars that are left once alike neighbours are joined and many are thinned out.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/draw/stacks.h"

namespace lockstep::draw {

struct StackBar {
  std::string label;          // "1-14" for neighbours that are alike
  std::vector<double> sizes;  // as StackRow
  std::string note;
  double total = 0;
};

struct StackBars {
  std::vector<StackBar> bars;
  std::string left_out;       // a sentence; empty: nothing is
  double extent = 0;          // of the longest bar, or the limit if that is more and not far away
  bool limit_is_far = false;  // more than twenty times the longest bar, which would not be seen
};

StackBars stack_bars(const Stacks& stacks, int most);

// Whether any row has some of it.
bool has_part(const Stacks& stacks, std::size_t part);

// Colours of parts in their order: three blues, two oranges, two greys, which differ in lightness; the index is one of
// a terminal's 256.
struct StackColour {
  const char* paper;  // "#00548c"
  int terminal;
  bool is_dark;
};
const StackColour& stack_colour(std::size_t part);

}  // namespace lockstep::draw
