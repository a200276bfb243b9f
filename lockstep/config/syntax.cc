#include "lockstep/config/syntax.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/config/glyphs.h"

namespace lockstep::config {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

void append_utf8(std::uint32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  constexpr std::uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
  int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;  // bytes that follow, with six bits each
  out += static_cast<char>(kLead[more] | c >> 6 * more);
  while (more-- > 0) out += static_cast<char>(0x80 | (c >> 6 * more & 0x3F));
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
  Reader(std::string_view text, const std::string& file, Report& report)
      : text_(text), file_(file), report_(report) {
    if (text_.starts_with(kByteOrderMark)) at_ = line_starts_[0] = kByteOrderMark.size();
    for (std::size_t i = at_; i < text_.size(); ++i)
      if (text_[i] == '\n') line_starts_.push_back(i + 1);
  }

  std::optional<Value> read() {
    Value root;
    skip_space();
    if (!read_value(root, 0)) return std::nullopt;
    skip_space();
    if (at_ < text_.size())
      refuse(at_, "there is more text after the end of the object");
    else if (root.kind != ValueKind::kTable)
      refuse(0, "the file holds no object", "wrap the keys in { ... }");
    else
      return root;
    return std::nullopt;
  }

 private:
  Span span(std::size_t begin, std::size_t end) const {
    begin = std::max(begin, line_starts_[0]);
    const auto after = std::ranges::upper_bound(line_starts_, begin);
    const std::size_t start = *(after - 1);
    const auto line = static_cast<int>(after - line_starts_.begin());
    const std::size_t line_end = std::min(text_.find('\n', begin), text_.size());
    return {file_, line, count_code_points(text_.substr(start, begin - start)) + 1,
            count_code_points(text_.substr(begin, std::min(end, line_end) - begin))};
  }

  // `at` is a byte of the text.
  bool refuse(std::size_t at, std::string message, std::string help = "", int length = 1) {
    Span place = span(at, at);
    place.length = length;
    report_.add({Code::kSyntax, std::move(message), std::move(help)}, place);
    return false;
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
    value.kind = ValueKind::kTable;
    return read_all('}', "object", "entry", "entries", [&] { return read_entry(value, depth); });
  }

  bool read_list(Value& value, int depth) {
    value.kind = ValueKind::kList;
    return read_all(']', "list", "item", "items",
                    [&] { return read_value(value.items.emplace_back(), depth + 1); });
  }

  // From an open bracket to its `close`.
  template <class ReadItem>
  bool read_all(char close, const char* whole, const char* item, const char* items,
                ReadItem read_item) {
    const std::size_t begin = at_++;
    skip_space();
    if (peek() == close) return ++at_, true;
    while (true) {
      if (!read_item()) return false;
      skip_space();
      if (peek() == close) return ++at_, true;
      if (at_ == text_.size())
        return refuse(begin, strf("this %s is never closed", whole), strf("add a `%c`", close));
      if (peek() != ',')
        return refuse(at_, strf("two %s without a comma between them", items), "add a `,`");
      const std::size_t comma = at_++;
      skip_space();
      if (peek() == close)
        return refuse(comma, strf("a comma after the last %s", item),
                      "JSON does not allow it; remove it");
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
    const std::size_t from = at_;
    while (std::string_view(" \t\r\n,]}:\"").find(peek()) == std::string_view::npos &&
           at_ < text_.size())
      ++at_;
    const std::string word(text_.substr(from, at_ - from));
    value.kind = ValueKind::kBool;
    value.boolean = word == "true";
    if (word == "true" || word == "false") return true;
    if (from == text_.size()) return refuse(from, "the file ends where a value should be");
    const int length = std::max(1, count_code_points(word));
    if (word == "null")
      return refuse(from, "null is not a value here", "leave the key out", length);
    if (word.empty()) return refuse(from, "a value is missing here");
    return refuse(from, "`" + word + "` is not a value", "text is written in double quotes",
                  length);
  }

  std::string_view text_;
  const std::string& file_;
  Report& report_;
  std::size_t at_ = 0;
  std::vector<std::size_t> line_starts_ = {0};
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines = split(text, '\n');
  for (std::string_view& line : lines)
    if (line.ends_with('\r')) line.remove_suffix(1);
  return lines;
}

// Text between the last pair of single quotes: the name in "cannot redefine existing table 'a'".
std::string quoted(std::string_view reason) {
  const std::size_t end = reason.rfind('\'');
  if (end == std::string_view::npos || end == 0) return "";
  const std::size_t begin = reason.rfind('\'', end - 1);
  return begin == reason.npos ? "" : std::string(reason.substr(begin + 1, end - begin - 1));
}

class Explainer {
 public:
  Explainer(std::string_view text, const std::string& file, int line, int column,
            std::string_view reason)
      : lines_(split_lines(text)), file_(file), reason_(reason) {
    line_ = std::clamp(line, 1, static_cast<int>(lines_.size()));
    column_ = std::max(1, column);
    split_at_equals();
  }

  Diagnostic explain() {
    if (not_text() || redefined() || unclosed() || header() || without_equals() || value())
      return std::move(found_);
    const std::size_t colon = reason_.find(": ");
    const std::string_view rest = colon == reason_.npos ? reason_ : reason_.substr(colon + 2);
    say("this is not TOML: " + std::string(rest), at_column());
    return std::move(found_);
  }

 private:
  std::string_view text() const { return lines_[line_ - 1]; }

  // key_, value_ and where they begin, of a line `key = value # comment`.
  void split_at_equals() {
    const std::size_t equals = text().find('=');
    key_ = trimmed(text().substr(0, equals));
    if (equals == std::string_view::npos) return;
    has_equals_ = true;
    value_ = text().substr(equals + 1);
    const char first = trimmed(value_).empty() ? '\0' : trimmed(value_).front();
    if (first != '"' && first != '\'') value_ = value_.substr(0, value_.find('#'));
    value_ = trimmed(value_);
  }

  Span at_column() const { return {file_, line_, column_, 1}; }
  Span span_of(int line, std::string_view part) const {
    const std::string_view whole = lines_[line - 1];
    const auto before = static_cast<std::size_t>(part.data() - whole.data());
    return {file_, line, count_code_points(whole.substr(0, before)) + 1, count_code_points(part)};
  }
  Span span_of(std::string_view part) const { return span_of(line_, part); }

  bool say(std::string message, Span span, std::string help = "", std::string label = "") {
    found_.code = Code::kSyntax;
    found_.message = std::move(message);
    found_.primary = {std::move(span), std::move(label)};
    found_.help = std::move(help);
    return true;
  }

  bool not_text() {
    const bool control = std::ranges::any_of(
        text(), [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7F; });
    if (!control && !has(reason_, "utf-8") && !has(reason_, "UTF-8")) return false;
    return say("the file is not UTF-8 text", at_column(),
               "a configuration file is TOML or JSON; this one looks binary");
  }

  bool redefined() {
    if (!has(reason_, "cannot redefine")) return false;
    const std::string name = quoted(reason_);
    const bool is_header = trimmed(text()).starts_with('[');
    if (is_header)
      say("table [" + name + "] is defined twice", span_of(trimmed(text())),
          "put its keys under one header", "again here");
    else
      say("key `" + name + "` is set twice", span_of(key_), "keep one of the two", "again here");
    if (const std::optional<Span> first = first_definition(is_header, name))
      found_.secondary.emplace_back(*first, "first here");
    return true;
  }

  // Searches upward, a key only within its own table.
  std::optional<Span> first_definition(bool is_header, std::string_view name) const {
    std::optional<Span> first;
    for (int n = line_ - 1; n >= 1; --n) {
      const std::string_view line = trimmed(lines_[n - 1]);
      if (is_header && line.starts_with('[') && trimmed(line.substr(1, line.find(']') - 1)) == name)
        first = span_of(n, line);
      if (!is_header && line.starts_with('[')) break;
      const std::string_view key = trimmed(line.substr(0, line.find('=')));
      if (!is_header && (key == key_ || key.starts_with(std::string(key_) + ".")))
        first = span_of(n, key);
    }
    return first;
  }

  bool unclosed() {
    if (has(reason_, "array") && (has(reason_, "end-of-file") || has(reason_, "expected"))) {
      for (int n = line_; n >= 1; --n) {
        const std::string_view line = lines_[n - 1];
        const std::size_t open = line.find('[');
        const std::size_t equals = line.find('=');
        if (equals < open && open != std::string_view::npos)
          return say("this list is not closed", span_of(n, line.substr(open, 1)),
                     "separate its items with `,` and end it with `]`");
      }
    }
    if (has(reason_, "inline table"))
      return say("this { ... } is not closed on its line", at_column(),
                 "write it on one line, or as a [table] of its own");
    const char first = value_.empty() ? '\0' : value_.front();
    if ((first == '"' || first == '\'') && has(reason_, "string") &&
        !has(reason_, "escape sequence"))
      return say("this text has no closing quote", span_of(value_),
                 std::string("end it with a `") + first + "`");
    return false;
  }

  bool header() {
    const std::string_view line = trimmed(text());
    if (!line.starts_with('[') || !has(reason_, "table header")) return false;
    std::string name;
    for (const char c : line)
      if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-')
        name += c;
    return say("this table header is not well-formed", span_of(line),
               "write [" + (name.empty() ? "name" : name) + "]");
  }

  bool without_equals() {
    const std::size_t colon = text().find(':');
    if (colon != std::string_view::npos && colon < text().find('=') && has(reason_, "':'")) {
      const std::string_view value = trimmed(text().substr(colon + 1));
      return say("TOML writes `key = value`, with an equals sign", at_column(),
                 "write " + std::string(trimmed(text().substr(0, colon))) + " = " +
                     std::string(value.empty() ? "..." : value));
    }
    if (has_equals_ && key_.empty())
      return say("there is no key before the `=`", at_column(), "write key = value");
    if (has_equals_ && key_.find_first_of(" \t") != std::string_view::npos &&
        has(key_, "\"") == false)
      return say("a key is one word", span_of(key_), "join it with `_`, or quote it");
    const bool is_ascii = std::ranges::all_of(key_, [](unsigned char c) { return c < 0x80; });
    if (has_equals_ && !is_ascii && !has(key_, "\""))
      return say("a key without quotes has only letters a to z, digits, `_` and `-`", span_of(key_),
                 "no key of ours has others; where one is meant, quote it");
    if (has_equals_ || trimmed(text()).empty()) return false;
    return say("this is no `key = value`", span_of(trimmed(text())),
               "write key = value, [table], or # before a comment");
  }

  bool value() {
    if (!has_equals_) return false;
    const std::string key(key_);
    const std::string word(value_);
    if (value_.empty())
      return say("key `" + key + "` has no value", span_of(key_), "write " + key + " = ...");
    const Span span = span_of(value_);
    if (value_.starts_with('='))
      return say("one `=` is enough", span,
                 "write " + key + " = " + std::string(trimmed(value_.substr(1))));
    if (has(reason_, "escape sequence"))
      return say("unknown escape in text", at_column(),
                 "write `\\\\` for a `\\`, or use single quotes");
    if (has(reason_, "64 bits")) return say("`" + word + "` does not fit in 64 bits", span);
    return bare_word(key, word, span);
  }

  bool bare_word(const std::string& key, const std::string& word, const Span& span) {
    const std::string small = lower(word);
    if (small == "true" || small == "yes" || small == "on")
      return say("`" + word + "` is not a value", span, "write " + key + " = true");
    if (small == "false" || small == "no" || small == "off")
      return say("`" + word + "` is not a value", span, "write " + key + " = false");
    if (small == "none" || small == "null" || small == "nil")
      return say("TOML has no `" + word + "`", span, "leave the key out");
    if (word.ends_with(','))
      return say("a comma after a value", at_column(), "remove it; each key has its own line");
    if (has(word, "=") && !word.starts_with('{'))
      return say("two keys on one line", at_column(), "give each key its own line");
    const bool is_number = small.find_first_not_of("0123456789.+-_e") == std::string::npos;
    if (is_number && (has(reason_, "leading zero") || small.starts_with("0")))
      return say("`" + word + "` begins with a zero", span, "remove the leading zeros");
    if (is_number)
      return say("`" + word + "` is not a well-formed number", span,
                 "a decimal point needs a digit on both sides: 1.0, 0.5");
    if (word.find_first_of("\"'[{") != std::string::npos) return false;
    return say("text needs quotes", span, "write " + key + " = \"" + word + "\"");
  }

  std::vector<std::string_view> lines_;
  const std::string& file_;
  std::string_view reason_;
  int line_ = 1;
  int column_ = 1;
  bool has_equals_ = false;
  std::string_view key_;
  std::string_view value_;
  Diagnostic found_;
};

// Behind a text whose first quote is at `at`, or where an unclosed one ends.
std::size_t skip_text(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const bool is_long = text.substr(at).starts_with(std::string(3, quote));
  const std::string end(is_long ? 3 : 1, quote);
  for (at += end.size(); at < text.size() && !text.substr(at).starts_with(end); ++at) {
    if (text[at] == '\n' && !is_long) return at;
    if (text[at] == '\\' && quote == '"') ++at;
  }
  at = std::min(at + end.size(), text.size());
  return is_long ? std::min(text.find_first_not_of(quote, at), text.size()) : at;
}

}  // namespace

Diagnostic explain_toml_error(std::string_view text, const std::string& file, int line, int column,
                              std::string_view reason) {
  return Explainer(text, file, line, column, reason).explain();
}

std::size_t find_deep_nesting(std::string_view text, int limit) {
  std::vector<int> dots = {0};  // of the name being read, by open bracket
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' || c == '\'') at = skip_text(text, at) - 1;
    if (c == '#') at = std::min(text.find('\n', at), text.size()) - 1;
    if (c == '\n' || c == ',') depth -= std::exchange(dots.back(), 0);
    if (c == '.') ++dots.back(), ++depth;
    if (c == '[' || c == '{') dots.push_back(0), ++depth;
    if ((c == ']' || c == '}') && dots.size() > 1) depth -= 1 + dots.back(), dots.pop_back();
    if (depth > limit) return at;
  }
  return std::string_view::npos;
}

std::optional<Value> parse_json_text(std::string_view text, const std::string& file,
                                     Report& report) {
  return Reader(text, file, report).read();
}

}  // namespace lockstep::config
