// Small readings of plain text, and its lines on a page.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace lockstep {

// The number that is all of the text; `format` is what std::from_chars takes besides.
template <class Number, class... Format>
std::optional<Number> number_in(std::string_view text, Format... format) {
  Number value{};
  const char* last = text.data() + text.size();
  const auto [end, status] = std::from_chars(text.data(), last, value, format...);
  return status == std::errc() && end == last ? std::optional(value) : std::nullopt;
}

// What lies between separators, in order: one part more than there are of them.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t end = 0; (end = text.find(separator)) != std::string_view::npos;) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

// `text` broken at spaces into lines of at most `width`, each from column `indent` on; the first
// line has `at` columns already. Ends with a line end.
std::string wrapped(const std::string& text, int indent, int at, int width);

}  // namespace lockstep
