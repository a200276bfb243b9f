#include "lockstep/draw/terminal_text.h"

#include <algorithm>

namespace lockstep::draw {

std::string printable(std::string text) {
  for (char& c : text)
    if (c < 0x20 || c > 0x7e) c = '?';
  return text;
}

std::string padded(const std::string& text, int width) {
  const auto size = static_cast<int>(text.size());
  return std::string(static_cast<std::size_t>(std::max(0, width - size)), ' ') + text;
}

std::string flowed(const std::vector<Item>& items, int gap, int width) {
  std::string lines;
  int used = 0;
  for (Item item : items) {
    if (item.width > width) {
      item.text.resize(static_cast<std::size_t>(width));
      item.width = width;
    }
    const bool is_first = used == 0;
    if (!is_first && used + gap + item.width > width) {
      lines += "\n";
      used = 0;
    } else if (!is_first) {
      lines.append(static_cast<std::size_t>(gap), ' ');
      used += gap;
    }
    lines += item.text;
    used += item.width;
  }
  return lines.empty() ? "" : lines + "\n";
}

std::string flowed(const std::string& text, int width) {
  std::vector<Item> words;
  const std::string clean = printable(text);
  for (std::size_t begin = 0; begin < clean.size();) {
    const std::size_t end = std::min(clean.find(' ', begin), clean.size());
    for (std::size_t at = begin; at < end; at += static_cast<std::size_t>(width)) {
      const std::size_t size = std::min(end - at, static_cast<std::size_t>(width));
      words.push_back({clean.substr(at, size), static_cast<int>(size)});
    }
    begin = end + 1;
  }
  return flowed(words, 1, width);
}

}  // namespace lockstep::draw
