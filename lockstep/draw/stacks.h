// Quantities that are made of parts, a bar for each with its parts side by side, and a limit that
// all are held to: what the ranks of a pipeline hold by class, on a device of so much memory.
//
// Neighbours with the same parts share a bar. A terminal shows at most TerminalStyle::most_coords
// bars and a picture 128: every second (third, ...), the last and the longest, and a line says so.
// A limit of more than twenty times the longest bar is told and not drawn.
#pragma once

#include <string>
#include <vector>

#include "lockstep/draw/terminal.h"

namespace lockstep::draw {

struct StackPart {
  std::string name;
  char letter = '#';  // what it is drawn with where there is no colour
};

struct StackRow {
  std::string label;          // "0"
  std::vector<double> sizes;  // beside Stacks::parts, none negative
  std::string note = {};      // behind the bar, where there is room
};

struct Stacks {
  std::string title;
  std::string unit;  // of sizes and limit: "GiB"
  std::vector<StackPart>
      parts;                   // at most kMostStackParts; those of size 0 everywhere are not named
  std::vector<StackRow> rows;  // one or more
  double limit = 0;
  std::string limit_name;  // "a device has"; empty: there is no limit
};
inline constexpr std::size_t kMostStackParts = 7;

// Lines that end in a newline. REQUIRES: width >= 40.
std::string terminal(const Stacks& stacks, const TerminalStyle& style);

// A picture that stands alone, like svg.h; parts have their size as a tooltip.
std::string svg(const Stacks& stacks);

}  // namespace lockstep::draw
