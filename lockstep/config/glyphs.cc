#include "lockstep/config/glyphs.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace lockstep::config {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

struct Range {
  std::uint32_t first, last;
};

// The common part of Unicode's East Asian Width W and F, and of the combining marks.
constexpr Range kWide[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},
                           {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},
                           {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F},
                           {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
constexpr Range kZero[] = {{0x0300, 0x036F}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200F},
                           {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}};

bool in_any(const Range* begin, const Range* end, std::uint32_t c) {
  return std::any_of(begin, end, [c](Range r) { return r.first <= c && c <= r.last; });
}

struct Decoded {
  std::uint32_t code_point = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

Decoded decode(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  std::uint32_t c = lead & (0xFFu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return {};
    c = (c << 6) | (next & 0x3Fu);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
  if (c < kSmallest[bytes] || c > 0x10FFFF || surrogate) return {};
  return {c, bytes, true};
}

Glyph glyph_of(const Decoded& d, std::string_view bytes) {
  if (d.valid && d.code_point == '\t') return {"    ", 4};
  const bool control = d.code_point < 0x20 || (d.code_point >= 0x7F && d.code_point < 0xA0);
  // Bidirectional controls would let a file reorder what the reader sees.
  const bool bidi = (d.code_point >= 0x202A && d.code_point <= 0x202E) ||
                    (d.code_point >= 0x2066 && d.code_point <= 0x2069);
  if (!d.valid || control || bidi) return {std::string(kReplacement), 1};
  int width = 1;
  if (in_any(std::begin(kWide), std::end(kWide), d.code_point)) width = 2;
  if (in_any(std::begin(kZero), std::end(kZero), d.code_point)) width = 0;
  return {std::string(bytes), width};
}

}  // namespace

std::vector<Glyph> glyphs(std::string_view line) {
  std::vector<Glyph> result;
  while (!line.empty()) {
    const Decoded d = decode(line);
    result.push_back(glyph_of(d, line.substr(0, d.bytes)));
    line.remove_prefix(d.bytes);
  }
  return result;
}

int count_code_points(std::string_view text) {
  int count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(decode(text).bytes);
  return count;
}

}  // namespace lockstep::config
