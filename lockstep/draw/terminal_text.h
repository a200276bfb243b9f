// Words on the lines of a terminal.
#pragma once

#include <string>
#include <vector>

namespace lockstep::draw {

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
