// A figure as lines of text for a terminal.
//
// Under the heading, each pipeline rank has one row for compute, and a second for its collectives
// where there are any; transfers are left to svg.h and trace.h, where their lanes have room. The
// number at the end of a row is the most the pipeline rank held. Time is scaled to the width. A
// column that several bars share shows one of them, such that over many columns every ink and idle
// time has its share (dealt). A bar carries the number of its microbatch where that fits.
//
// With colour the ink is the background, odd chunks are lighter, and edges are drawn to an eighth
// of a column with Unicode blocks. Without, all is ASCII: a bar begins with its letter, in lower
// case for odd chunks.
#pragma once

#include <string>
#include <vector>

#include "lockstep/draw/figure.h"

namespace lockstep::draw {

struct TerminalStyle {
  int width = 80;       // no line is wider
  bool colour = false;  // 256 colours
  // With more pipeline ranks than this, every second (third, ...) is shown and the last, and a line
  // says so.
  int most_coords = 32;
};

// Lines that end in a newline. REQUIRES: width >= 20, most_coords >= 2.
std::string terminal(const Figure& figure, const TerminalStyle& style);

// Words on the lines of a terminal.

// A text with what it takes of a line: escape codes take nothing.
struct Item {
  std::string text;
  int width;
};

// A text from outside: nothing in it may drive the terminal or take another width than its bytes.
std::string printable(std::string text);

// At the right end of `width` columns.
std::string padded(const std::string& text, int width);

// Items on as few lines as they need, `gap` columns apart; one wider than a line is cut.
std::string flowed(const std::vector<Item>& items, int gap, int width);
// The same of the words of a text; longer ones are broken.
std::string flowed(const std::string& text, int width);

}  // namespace lockstep::draw
