#include "lockstep/config/json_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/config/glyphs.h"

namespace lockstep::config {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

struct Refusal {
  std::size_t at = 0;  // byte offset
  int length = 1;
  std::string message;
  std::string help;
};

void append_utf8(std::uint32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
  } else {
    if (c < 0x10000) {
      out += static_cast<char>(0xE0 | (c >> 12));
    } else {
      out += static_cast<char>(0xF0 | (c >> 18));
      out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    }
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
  }
  out += static_cast<char>(0x80 | (c & 0x3F));
}

// What from_chars takes and JSON does not: a leading zero, a point without digits on both sides.
bool is_json_number(std::string_view digits) {
  const auto is_digit = [&](std::size_t i) {
    return i < digits.size() && digits[i] >= '0' && digits[i] <= '9';
  };
  const std::size_t first = digits.starts_with('-') ? 1 : 0;
  const std::size_t point = digits.find('.');
  if (!is_digit(first) || (digits[first] == '0' && is_digit(first + 1))) return false;
  return point == std::string_view::npos || is_digit(point + 1);
}

// Recursive descent over RFC 8259. Stops at the first refusal.
class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {
    if (text_.starts_with(kByteOrderMark)) at_ = line_starts_[0] = kByteOrderMark.size();
    for (std::size_t i = at_; i < text_.size(); ++i)
      if (text_[i] == '\n') line_starts_.push_back(i + 1);
  }

  std::optional<Value> read(Refusal& refusal) {
    Value root;
    skip_space();
    const bool read_all = read_value(root, 0) && (skip_space(), at_end_or_refuse());
    if (read_all && root.kind == ValueKind::kTable) return root;
    if (read_all) refuse(0, "the file holds no object", "wrap the keys in { ... }");
    refusal = std::move(refusal_);
    return std::nullopt;
  }

  Span span(std::size_t begin, std::size_t end) const {
    begin = std::max(begin, line_starts_[0]);
    const auto after = std::ranges::upper_bound(line_starts_, begin);
    const std::size_t start = *(after - 1);
    const auto line = static_cast<int>(after - line_starts_.begin());
    const std::size_t line_end = std::min(text_.find('\n', begin), text_.size());
    return {file_, line, count_code_points(text_.substr(start, begin - start)) + 1,
            count_code_points(text_.substr(begin, std::min(end, line_end) - begin))};
  }

 private:
  bool refuse(std::size_t at, std::string message, std::string help = "", int length = 1) {
    refusal_ = {at, length, std::move(message), std::move(help)};
    return false;
  }
  bool at_end_or_refuse() {
    return at_ == text_.size() || refuse(at_, "there is more text after the end of the object");
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') ++at_;
  }

  bool read_value(Value& value, int depth) {
    if (depth > kMaxNesting) return refuse(at_, strf("nested deeper than %d levels", kMaxNesting));
    const std::size_t begin = at_;
    bool good = false;
    if (peek() == '{')
      good = read_object(value, depth);
    else if (peek() == '[')
      good = read_list(value, depth);
    else if (peek() == '"')
      value.kind = ValueKind::kString, good = read_string(value.text);
    else if (peek() == '-' || (peek() >= '0' && peek() <= '9'))
      good = read_number(value);
    else
      good = read_word(value);
    if (good) value.span = span(begin, at_);
    return good;
  }

  bool read_object(Value& value, int depth) {
    const std::size_t begin = at_++;
    value.kind = ValueKind::kTable;
    skip_space();
    if (peek() == '}') return ++at_, true;
    while (true) {
      if (!read_entry(value, depth)) return false;
      skip_space();
      if (peek() == '}') return ++at_, true;
      if (at_ == text_.size()) return refuse(begin, "this object is never closed", "add a `}`");
      if (peek() != ',')
        return refuse(at_, "two entries without a comma between them", "add a `,`");
      const std::size_t comma = at_++;
      skip_space();
      if (peek() == '}')
        return refuse(comma, "a comma after the last entry", "JSON does not allow it; remove it");
    }
  }

  bool read_entry(Value& table, int depth) {
    if (at_ == text_.size()) return refuse(at_, "the file ends inside an object", "add a `}`");
    if (peek() != '"') return refuse(at_, "a key must be written in double quotes");
    Entry entry;
    const std::size_t begin = at_;
    if (!read_string(entry.key)) return false;
    entry.key_span = span(begin, at_);
    if (table.find(entry.key) != nullptr)
      return refuse(begin, "key `" + entry.key + "` is set twice", "keep one of the two",
                    entry.key_span.length);
    skip_space();
    if (peek() != ':') return refuse(at_, "no `:` after the key `" + entry.key + "`");
    ++at_;
    skip_space();
    if (!read_value(entry.value, depth + 1)) return false;
    table.entries.push_back(std::move(entry));
    skip_space();
    return true;
  }

  bool read_list(Value& value, int depth) {
    const std::size_t begin = at_++;
    value.kind = ValueKind::kList;
    skip_space();
    if (peek() == ']') return ++at_, true;
    while (true) {
      if (!read_value(value.items.emplace_back(), depth + 1)) return false;
      skip_space();
      if (peek() == ']') return ++at_, true;
      if (at_ == text_.size()) return refuse(begin, "this list is never closed", "add a `]`");
      if (peek() != ',') return refuse(at_, "two items without a comma between them", "add a `,`");
      const std::size_t comma = at_++;
      skip_space();
      if (peek() == ']')
        return refuse(comma, "a comma after the last item", "JSON does not allow it; remove it");
    }
  }

  bool read_string(std::string& out) {
    const std::size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != '"') {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '\n') break;
      if (c < 0x20) return refuse(at_, "a control character inside text", "write it as \\uXXXX");
      if (c == '\\') {
        if (!read_escape(out)) return false;
      } else {
        out += text_[at_++];
      }
    }
    if (peek() != '"') return refuse(begin, "this text has no closing quote", "add a `\"`");
    return ++at_, true;
  }

  bool read_escape(std::string& out) {
    constexpr std::string_view kFrom = "\"\\/bfnrt";
    constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    const std::size_t begin = at_++;
    const std::size_t which = kFrom.find(peek());
    if (peek() != '\0' && which != std::string_view::npos) return out += kTo[which], ++at_, true;
    if (peek() != 'u') return refuse(begin, "unknown escape in text", "write `\\\\` for a `\\`", 2);
    std::uint32_t c = 0;
    if (!read_hex(c)) return refuse(begin, "`\\u` needs four hexadecimal digits", "", 2);
    std::uint32_t low = 0;
    const bool is_high = c >= 0xD800 && c <= 0xDBFF;
    if (is_high && peek() == '\\' && text_.substr(at_ + 1).starts_with('u')) ++at_, read_hex(low);
    const bool is_pair = is_high && low >= 0xDC00 && low <= 0xDFFF;
    if (is_pair) c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    if (c >= 0xD800 && c <= 0xDFFF) return refuse(begin, "half a surrogate pair in text", "", 6);
    append_utf8(c, out);
    return true;
  }

  // At the `u` of an escape.
  bool read_hex(std::uint32_t& c) {
    const std::string_view digits = text_.substr(at_ + 1).substr(0, 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), c, 16);
    if (error != std::errc() || digits.size() < 4 || end != digits.data() + 4) return false;
    at_ += 5;
    return true;
  }

  bool read_number(Value& value) {
    const std::size_t begin = at_;
    while (std::string_view("+-.0123456789eE").find(peek()) != std::string_view::npos &&
           at_ < text_.size())
      ++at_;
    const std::string_view digits = text_.substr(begin, at_ - begin);
    const bool is_real = digits.find_first_of(".eE") != std::string_view::npos;
    value.kind = is_real ? ValueKind::kReal : ValueKind::kInt;
    const char* end = digits.data() + digits.size();
    const auto parsed = is_real ? std::from_chars(digits.data(), end, value.real)
                                : std::from_chars(digits.data(), end, value.integer);
    if (parsed.ec == std::errc() && parsed.ptr == end && is_json_number(digits)) return true;
    if (!is_real && parsed.ec == std::errc::result_out_of_range && is_json_number(digits)) {
      using Limits = std::numeric_limits<std::int64_t>;
      value.integer = digits.starts_with('-') ? Limits::min() : Limits::max();
      value.text = std::string(digits);
      return true;
    }
    return refuse(begin, join_parts("`", digits, "` is not a number that can be read"),
                  parsed.ec == std::errc::result_out_of_range ? "it must fit in 64 bits" : "",
                  static_cast<int>(digits.size()));
  }

  bool read_word(Value& value) {
    const std::size_t begin = at_;
    while (std::string_view(" \t\r\n,]}:\"").find(peek()) == std::string_view::npos &&
           at_ < text_.size())
      ++at_;
    const std::string word(text_.substr(begin, at_ - begin));
    value.kind = ValueKind::kBool;
    value.boolean = word == "true";
    if (word == "true" || word == "false") return true;
    if (begin == text_.size()) return refuse(begin, "the file ends where a value should be");
    const int length = std::max(1, count_code_points(word));
    if (word == "null")
      return refuse(begin, "null is not a value here", "leave the key out", length);
    if (word.empty()) return refuse(begin, "a value is missing here");
    return refuse(begin, "`" + word + "` is not a value", "text is written in double quotes",
                  length);
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  std::vector<std::size_t> line_starts_ = {0};
  Refusal refusal_;
};

}  // namespace

std::optional<Value> parse_json_text(std::string_view text, const std::string& file,
                                     Report& report) {
  Reader reader(text, file);
  Refusal refusal;
  std::optional<Value> root = reader.read(refusal);
  if (!root) {
    Span span = reader.span(refusal.at, refusal.at);
    span.length = refusal.length;
    report.add({.code = Code::kSyntax,
                .message = refusal.message,
                .primary = {span, ""},
                .secondary = {},
                .notes = {},
                .help = refusal.help});
  }
  return root;
}

}  // namespace lockstep::config
