#include "lockstep/config/document.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

// Junk breaks assertions of toml++'s parser that its own error handling behind them would catch;
// they must neither abort nor, with NDEBUG, be taken for granted by the optimizer.
#undef NDEBUG
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/config/glyphs.h"
#include "lockstep/config/json_text.h"
#include "lockstep/config/toml_syntax.h"

namespace lockstep::config {
namespace {

constexpr std::size_t kMaxFileBytes = 16u << 20;

Span to_span(const toml::source_region& region, const std::string& file, const Report& report) {
  const auto line = static_cast<int>(region.begin.line);
  const auto column = static_cast<int>(region.begin.column);
  int length = static_cast<int>(region.end.column) - column;
  if (region.end.line != region.begin.line)
    length = count_code_points(report.sources.line(file, line)) - column + 1;
  return {file, line, column, std::max(1, length)};
}

// Copies toml++'s tree, which sorts keys by name, into ours, which keeps the order written.
class TomlReader {
 public:
  // `oversized`: whole numbers beyond 64 bits, by line and column.
  using Oversized = std::map<std::pair<int, int>, std::string>;
  TomlReader(const std::string& file, const Report& report, const Oversized& oversized)
      : file_(file), report_(report), oversized_(oversized) {}

  Value read(const toml::node& node) const {
    Value value;
    value.span = to_span(node.source(), file_, report_);
    if (const toml::table* table = node.as_table()) return read_table(*table, std::move(value));
    if (const toml::array* array = node.as_array()) {
      value.kind = ValueKind::kList;
      for (const toml::node& item : *array) value.items.push_back(read(item));
    } else if (const auto* boolean = node.as_boolean()) {
      value.kind = ValueKind::kBool;
      value.boolean = boolean->get();
    } else if (const auto* integer = node.as_integer()) {
      value.kind = ValueKind::kInt;
      value.integer = integer->get();
      const auto written = oversized_.find({value.span.line, value.span.column});
      if (written != oversized_.end()) {
        value.text = written->second;
        value.span.length = static_cast<int>(value.text.size());
      }
    } else if (const auto* real = node.as_floating_point()) {
      value.kind = ValueKind::kReal;
      value.real = real->get();
    } else if (const auto* text = node.as_string()) {
      value.kind = ValueKind::kString;
      value.text = text->get();
    } else {
      read_date(node, value);
    }
    return value;
  }

 private:
  Value read_table(const toml::table& table, Value value) const {
    value.kind = ValueKind::kTable;
    for (const auto& [key, node] : table)
      value.entries.push_back(
          {std::string(key.str()), to_span(key.source(), file_, report_), read(node)});
    std::ranges::stable_sort(value.entries, {}, [](const Entry& entry) {
      return std::pair(entry.key_span.line, entry.key_span.column);
    });
    return value;
  }

  static void read_date(const toml::node& node, Value& value) {
    value.kind = ValueKind::kDate;
    std::ostringstream out;
    if (const auto* date = node.as_date()) out << date->get();
    if (const auto* time = node.as_time()) out << time->get();
    if (const auto* date_time = node.as_date_time()) out << date_time->get();
    value.text = out.str();
  }

  const std::string& file_;
  const Report& report_;
  const Oversized& oversized_;
};

// Where a whole number in decimal that contains or ends at `at` begins and ends.
std::pair<std::size_t, std::size_t> number_around(std::string_view text, std::size_t at) {
  const auto is_digit = [&](std::size_t i) {
    return i < text.size() && (std::isdigit(static_cast<unsigned char>(text[i])) || text[i] == '_');
  };
  std::size_t begin = at, end = at;
  while (begin > 0 && is_digit(begin - 1)) --begin;
  while (is_digit(end)) ++end;
  if (begin > 0 && (text[begin - 1] == '-' || text[begin - 1] == '+')) --begin;
  return {begin, end};
}

// Replaces the number beyond 64 bits that `error` is about by the nearest that fits, in as many
// characters, so that the rest of the file can be read. False when it is another error.
bool clip_number(const toml::parse_error& error, std::string& text,
                 TomlReader::Oversized& oversized) {
  if (error.description().find("64 bits") == std::string_view::npos) return false;
  const auto line = static_cast<int>(error.source().begin.line);
  std::size_t start = 0;
  for (int n = 1; n < line && start != std::string::npos; ++n) {
    start = text.find('\n', start);
    if (start != std::string::npos) ++start;
  }
  if (start == std::string::npos) return false;
  const std::size_t at = start + error.source().begin.column - 1;
  if (at > text.size()) return false;
  const auto [begin, end] = number_around(text, at);
  const std::string written = text.substr(begin, end - begin);
  std::string nearest = written.starts_with('-') ? "-9223372036854775808" : "9223372036854775807";
  if (written.size() < nearest.size() || begin < start) return false;
  nearest.resize(written.size(), ' ');
  text.replace(begin, nearest.size(), nearest);
  const int column = count_code_points(std::string_view(text).substr(start, begin - start)) + 1;
  return oversized.emplace(std::pair(line, column), written).second;
}

std::optional<Value> parse_toml(std::string_view text, const std::string& name, Report& report) {
  TomlReader::Oversized oversized;
  std::string clipped(text);
  while (true) {
    toml::parse_result parsed = toml::parse(clipped, std::string_view(name));
    if (parsed) return TomlReader(name, report, oversized).read(parsed.table());
    const toml::parse_error& error = parsed.error();
    constexpr std::size_t kMaxClipped = 64;  // each costs one more reading of the file
    if (oversized.size() < kMaxClipped && clip_number(error, clipped, oversized)) continue;
    report.add(explain_toml_error(text, name, static_cast<int>(error.source().begin.line),
                                  static_cast<int>(error.source().begin.column),
                                  error.description()));
    return std::nullopt;
  }
}

void set_origin(Value& value, Origin origin) {
  value.origin = origin;
  for (Value& item : value.items) set_origin(item, origin);
  for (Entry& entry : value.entries) set_origin(entry.value, origin);
}

void merge_tables(Value& into, const Value& over) {
  for (const Entry& entry : over.entries) {
    const auto found = std::ranges::find(into.entries, entry.key, &Entry::key);
    if (found == into.entries.end())
      into.entries.push_back(entry);
    else if (found->value.kind == ValueKind::kTable && entry.value.kind == ValueKind::kTable)
      merge_tables(found->value, entry.value);
    else
      *found = entry;
  }
}

void refuse(Report& report, Code code, std::string message, Label primary, std::string help) {
  report.add({.code = code,
              .message = std::move(message),
              .primary = std::move(primary),
              .secondary = {},
              .notes = {},
              .help = std::move(help)});
}

std::string reason_of(int error) {
  std::string text = std::strerror(error);
  text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

std::optional<std::string> read_file(const std::string& path, Span from, Report& report) {
  const auto unreadable = [&](const std::string& why, const std::string& help) {
    refuse(report, Code::kFileUnreadable, "cannot read `" + path + "`: " + why,
           {from, from.known() ? "named here" : ""}, help);
    return std::nullopt;
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return unreadable("it is a directory", "name a file in it");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return unreadable(reason_of(errno), "");
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad()) return unreadable("reading failed", "");
  if (text.size() > kMaxFileBytes)
    return unreadable("it is larger than " + to_text(Bytes{kMaxFileBytes}),
                      "a configuration file is small text; is this the right file?");
  return text;
}

// `chain` holds the files being read, to find circles; `from` is the `extends` that asked.
std::optional<Document> load(const std::string& path, std::vector<std::string>& chain,
                             const Span& from, Report& report) {
  const std::string normal = std::filesystem::path(path).lexically_normal().string();
  if (std::ranges::find(chain, normal) != chain.end()) {
    refuse(report, Code::kConflict, "`" + path + "` extends itself", {from, "leads back to it"},
           "remove this `extends`");
    return std::nullopt;
  }
  std::optional<std::string> text = read_file(path, from, report);
  if (!text) return std::nullopt;
  const std::size_t first = text->find_first_not_of(" \t\r\n\xef\xbb\xbf");
  const bool looks_json = first != std::string::npos && (*text)[first] == '{';
  const Format format = looks_json ? Format::kJson : format_of(path);
  std::optional<Document> document = parse_document(std::move(*text), path, format, report);
  const Entry* extends = document ? document->find("extends") : nullptr;
  if (extends == nullptr) return document;
  if (extends->value.kind != ValueKind::kString) {
    refuse(report, Code::kWrongType, "`extends` must be the name of a file",
           {extends->value.span, "this is " + std::string(to_text(extends->value.kind))},
           "write extends = \"base.toml\"");
    return std::nullopt;
  }
  const auto base_path = std::filesystem::path(path).parent_path() / extends->value.text;
  chain.push_back(normal);
  std::optional<Document> base =
      load(base_path.lexically_normal().string(), chain, extends->value.span, report);
  chain.pop_back();
  if (!base) return std::nullopt;
  Value base_root = base->root();
  set_origin(base_root, Origin::kBase);
  Value own_root = document->root();
  std::erase_if(own_root.entries, [](const Entry& entry) { return entry.key == "extends"; });
  Document merged(std::move(base_root));
  merged.merge(Document(std::move(own_root)));
  return merged;
}

bool is_dotted_path(std::string_view path) {
  bool last_was_dot = true;
  for (const char c : path) {
    const bool is_dot = c == '.';
    const bool is_word = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
    if (is_dot ? last_was_dot : !is_word) return false;
    last_was_dot = is_dot;
  }
  return !last_was_dot;
}

// The value after "key=" in a line of an artificial source; `column` is where it begins.
std::optional<Value> read_assigned(std::string_view text, const std::string& source, int line,
                                   int column, Report& report) {
  constexpr std::string_view kLead = "v=";
  const Span span{source, line, column, std::max(1, count_code_points(text))};
  Report scratch;
  const std::string toml = std::string(kLead) + std::string(text);
  std::optional<Value> parsed;
  if (text.find('\n') == std::string_view::npos) parsed = parse_toml(toml, source, scratch);
  Value value;
  if (parsed) {
    value = parsed->entries.front().value;
  } else if (!text.empty() &&
             std::string_view("[{\"'").find(text.front()) != std::string_view::npos) {
    refuse(report, Code::kSyntax, "this is not a TOML value", {span, ""},
           "quote the whole argument for the shell: --set 'key=[1, 2]'");
    return std::nullopt;
  } else {
    value.kind = ValueKind::kString;
    value.text = std::string(text);
  }
  value.span = span;
  return value;
}

std::string quoted_toml(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      out += strf("\\u%04X", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + "\"";
}

std::string real_text(double real) {
  if (std::isnan(real)) return "nan";
  if (std::isinf(real)) return real < 0 ? "-inf" : "inf";
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), real);
  std::string text(digits.data(), end);
  const std::size_t sign =
      text.find_first_of("+-", text.find('e') == std::string::npos ? text.size() : text.find('e'));
  if (sign != std::string::npos && text[sign + 1] == '0') text.erase(sign + 1, 1);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace

std::string_view to_text(Origin origin) {
  constexpr std::array<std::string_view, 6> kTexts = {"default", "derived",     "base",
                                                      "file",    "environment", "flag"};
  return kTexts.at(static_cast<std::size_t>(origin));
}

std::string_view to_text(ValueKind kind) {
  constexpr std::array<std::string_view, 7> kTexts = {
      "true or false", "a whole number", "a number", "text", "a date or time", "a list", "a table"};
  return kTexts.at(static_cast<std::size_t>(kind));
}

const Entry* Value::find(std::string_view key) const {
  const auto found = std::ranges::find(entries, key, &Entry::key);
  return found == entries.end() ? nullptr : &*found;
}

std::string to_text(const Value& value) {
  std::string out;
  switch (value.kind) {
    case ValueKind::kBool:
      return value.boolean ? "true" : "false";
    case ValueKind::kInt:
      return value.text.empty() ? std::to_string(value.integer) : value.text;
    case ValueKind::kReal:
      return real_text(value.real);
    case ValueKind::kString:
      return quoted_toml(value.text);
    case ValueKind::kDate:
      return value.text;
    case ValueKind::kList:
      for (const Value& item : value.items) out += (out.empty() ? "" : ", ") + to_text(item);
      return "[" + out + "]";
    case ValueKind::kTable:
      for (const Entry& entry : value.entries)
        out += (out.empty() ? "" : ", ") + entry.key + " = " + to_text(entry.value);
      return out.empty() ? "{}" : "{ " + out + " }";
  }
  return out;
}

Format format_of(std::string_view file_name) {
  return file_name.ends_with(".json") ? Format::kJson : Format::kToml;
}

bool looks_like_a_file(std::string_view word) {
  return word.ends_with(".toml") || word.ends_with(".json") ||
         word.find('/') != std::string_view::npos;
}

bool is_there(std::string_view word) {
  std::error_code unknown;
  return !word.empty() && std::filesystem::exists(std::filesystem::path(word), unknown);
}

const Entry* find(const Value& root, std::string_view path) {
  const Value* table = &root;
  while (true) {
    const std::size_t dot = path.find('.');
    const Entry* entry = table->find(path.substr(0, dot));
    if (entry == nullptr || dot == std::string_view::npos) return entry;
    table = &entry->value;
    path.remove_prefix(dot + 1);
  }
}

Json to_json(const Value& value) {
  Json json;
  switch (value.kind) {
    case ValueKind::kBool:
      return value.boolean;
    case ValueKind::kInt:
      return value.integer;
    case ValueKind::kReal:
      return value.real;
    case ValueKind::kString:
    case ValueKind::kDate:
      return value.text;
    case ValueKind::kList:
      json = Json::array();
      for (const Value& item : value.items) json.push(to_json(item));
      return json;
    case ValueKind::kTable:
      json = Json::object();
      for (const Entry& entry : value.entries) json.set(entry.key, to_json(entry.value));
      return json;
  }
  return json;
}

void Document::merge(const Document& over) { merge_tables(root_, over.root_); }

void Document::set(std::string_view path, const Span& key_span, Value value) {
  const std::size_t dot = path.rfind('.');
  Value table;
  const Origin origin = value.origin;
  table.entries.push_back({std::string(path.substr(dot + 1)), key_span, std::move(value)});
  for (std::string_view rest = path; rest.find('.') != std::string_view::npos;) {
    rest = rest.substr(0, rest.rfind('.'));
    Value outer;
    table.span = key_span;
    table.origin = origin;
    outer.entries.push_back(
        {std::string(rest.substr(rest.rfind('.') + 1)), key_span, std::move(table)});
    table = std::move(outer);
  }
  merge_tables(root_, table);
}

std::optional<Document> parse_document(std::string text, const std::string& name, Format format,
                                       Report& report) {
  report.sources.add(name, text);
  std::optional<Value> root = format == Format::kJson ? parse_json_text(text, name, report)
                                                      : parse_toml(text, name, report);
  if (!root) return std::nullopt;
  return Document(std::move(*root));
}

std::optional<Document> load_document(const std::string& path, Report& report) {
  std::vector<std::string> chain;
  return load(path, chain, {}, report);
}

bool apply_override(std::string_view assignment, Document& document, Report& report) {
  const std::string lead = "--set ";
  const int line = report.sources.append_line("--set", lead + std::string(assignment));
  const int first = static_cast<int>(lead.size()) + 1;
  const std::size_t equals = assignment.find('=');
  std::string_view path = assignment.substr(0, equals);
  while (path.ends_with(' ')) path.remove_suffix(1);
  const Span key_span{"--set", line, first, std::max(1, count_code_points(path))};
  if (equals == std::string_view::npos || equals + 1 == assignment.size()) {
    refuse(report, Code::kBadOptionValue, "this override gives no value", {key_span, ""},
           join_parts("write --set ", path.empty() ? "layout.tp" : path, "=VALUE"));
    return false;
  }
  if (!is_dotted_path(path)) {
    refuse(report, Code::kBadOptionValue, join_parts("`", path, "` is not a key"), {key_span, ""},
           "a key is words joined by dots, such as layout.tp");
    return false;
  }
  std::string_view text = assignment.substr(equals + 1);
  int column = first + count_code_points(assignment.substr(0, equals + 1));
  for (; text.starts_with(' '); text.remove_prefix(1)) ++column;
  std::optional<Value> value = read_assigned(text, "--set", line, column, report);
  if (!value) return false;
  set_origin(*value, Origin::kFlag);
  document.set(path, key_span, std::move(*value));
  return true;
}

bool apply_variable(const std::string& variable, std::string_view path, std::string_view text,
                    Document& document, Report& report) {
  const int line = report.sources.append_line("environment", variable + "=" + std::string(text));
  const int name_length = static_cast<int>(variable.size());
  const Span key_span{"environment", line, 1, name_length};
  std::optional<Value> value = read_assigned(text, "environment", line, name_length + 2, report);
  if (!value) return false;
  set_origin(*value, Origin::kEnvironment);
  document.set(path, key_span, std::move(*value));
  return true;
}

}  // namespace lockstep::config
