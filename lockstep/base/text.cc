#include "lockstep/base/text.h"

#include <algorithm>

namespace lockstep {

std::string wrapped(const std::string& text, int indent, int at, int width) {
  std::string out;
  int column = at;
  bool first = true;
  for (std::size_t begin = 0; begin < text.size();) {
    // "[default: 4]" and "4 %" stay in one piece.
    const std::size_t close = text[begin] == '[' ? text.find(']', begin) : begin;
    std::size_t end = std::min(text.find(' ', std::min(close, text.size())), text.size());
    if (text.compare(end, 2, " %") == 0) end = std::min(text.find(' ', end + 2), text.size());
    const auto length = static_cast<int>(end - begin);
    if (!first && column + 1 + length > width) {
      out += "\n";
      column = 0;
      first = true;
    }
    const int gap = first ? std::max(0, indent - column) : 1;
    out.append(gap, ' ').append(text, begin, end - begin);
    column += gap + length;
    first = false;
    begin = end + 1;
  }
  return out + "\n";
}

}  // namespace lockstep
