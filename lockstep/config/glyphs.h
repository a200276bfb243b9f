// A line of text as a terminal shows it, so that carets can be put under it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::config {

struct Glyph {
  std::string text;  // what to print; never a control character
  int width = 1;     // columns it takes
};

// One Glyph per code point of UTF-8 `line`. A tab becomes four spaces; a control character or a
// byte that is not UTF-8 becomes U+FFFD, so a hostile file cannot drive the terminal.
std::vector<Glyph> glyphs(std::string_view line);

// Code points in UTF-8 `text`, each invalid byte counting as one.
int count_code_points(std::string_view text);

}  // namespace lockstep::config
