#include "lockstep/draw/svg_text.h"

#include <algorithm>
#include <cstdint>

#include "lockstep/base/units.h"

namespace lockstep::draw {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Bytes of the code point at the front; 0 when it is not UTF-8 or nothing XML may hold.
std::size_t legal_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return lead >= 0x20 || lead == '\t' || lead == '\n' ? 1 : 0;
  const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < size) return 0;
  std::uint32_t point = lead & (0xFFu >> (size + 1));
  for (const char c : text.substr(1, size - 1)) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) return 0;
    point = point << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_none = point < kSmallest[size] || point > 0x10FFFF ||
                       (point >= 0xD800 && point <= 0xDFFF) || point == 0xFFFE || point == 0xFFFF;
  return is_none ? 0 : size;
}

std::string_view entity(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    default:
      return {};
  }
}

bool begins_code_point(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

}  // namespace

std::string xml_escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = legal_bytes(text);
    const std::string_view special = entity(text[0]);
    if (bytes == 0)
      out += kReplacement;
    else
      out += special.empty() ? text.substr(0, bytes) : special;
    text.remove_prefix(std::max<std::size_t>(1, bytes));
  }
  return out;
}

std::string svg_number(double number) {
  std::string text = strf("%.2f", number);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string svg_text(double x, double y, double size, std::string_view text,
                     const std::string& more) {
  return "<text x=\"" + svg_number(x) + "\" y=\"" + svg_number(y) + "\" font-size=\"" +
         svg_number(size) + "\"" + more + ">" + xml_escaped(text) + "</text>\n";
}

std::string svg_paragraph(double x, double& y, double size, double line, std::string_view text,
                          double width, const std::string& more) {
  std::string out;
  for (const std::string& words : wrapped(text, size, width))
    out += svg_text(x, y += line, size, words, more);
  return out;
}

std::string svg_rect(double x, double y, double width, double height, const std::string& more) {
  return "<rect x=\"" + svg_number(x) + "\" y=\"" + svg_number(y) + "\" width=\"" +
         svg_number(width) + "\" height=\"" + svg_number(height) + "\" " + more + "/>\n";
}

std::string svg_document(double width, double height, std::string_view title,
                         const std::string& head, const std::string& body) {
  const std::string w = svg_number(width), h = svg_number(height);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + w + "\" height=\"" + h +
         "\" viewBox=\"0 0 " + w + " " + h +
         "\" font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif\">\n"
         "<title>" +
         xml_escaped(title) + "</title>\n" + head + svg_rect(0, 0, width, height, "fill=\"#fff\"") +
         body + "</svg>\n";
}

double text_width(std::string_view text, double size) {
  constexpr double kNarrow =
      0.64;  // DejaVu Sans, the widest that is common; its capitals less often
  constexpr double kWide = 1.0;
  double width = 0;
  for (const char c : text)
    if (begins_code_point(c))
      width += static_cast<unsigned char>(c) < 0x80 && c != 'm' && c != 'M' && c != 'W' ? kNarrow
                                                                                        : kWide;
  return width * size;
}

std::vector<std::string> wrapped(std::string_view text, double size, double width) {
  std::vector<std::string> lines;
  const auto most = static_cast<std::size_t>(std::max(1.0, width / size));
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const bool joins =
        !lines.empty() && text_width(lines.back() + " ", size) + text_width(word, size) <= width;
    if (joins) {
      lines.back() += " " + std::string(word);
      continue;
    }
    while (text_width(word, size) > width) {
      std::size_t cut = std::min(most, word.size());
      while (cut > 1 && cut < word.size() && !begins_code_point(word[cut])) --cut;
      lines.emplace_back(word.substr(0, cut));
      word.remove_prefix(cut);
    }
    lines.emplace_back(word);
  }
  return lines;
}

}  // namespace lockstep::draw
