#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/config/fields.h"
#include "lockstep/config/suggest.h"

namespace lockstep::config {
namespace {

std::string number(double value) {
  if (std::abs(value) < 1e15 && value == std::floor(value))
    return std::to_string(static_cast<std::int64_t>(value));
  return strf("%g", value);
}

// Upper limits that only keep arithmetic safe are not worth a reader's time.
constexpr double kLargeLimit = 2147483647;

// "at least 1", "above 0", "between 1 and 8"; empty when anything goes.
std::string range_text(const Field& field, bool with_large_limits) {
  const bool low = std::isfinite(field.min);
  const bool high = std::isfinite(field.max) && (with_large_limits || field.max < kLargeLimit);
  const std::string above = field.above_min ? "above " : "at least ";
  if (low && high && field.above_min)
    return "above " + number(field.min) + " and at most " + number(field.max);
  if (low && high) return "between " + number(field.min) + " and " + number(field.max);
  if (low) return above + number(field.min);
  return high ? "at most " + number(field.max) : "";
}

std::string with_article(FieldType type) {
  switch (type) {
    case FieldType::kBool:
      return "true or false";
    case FieldType::kString:
    case FieldType::kChoice:
      return "text";
    case FieldType::kBytes:
      return "a size in bytes";
    default:
      return "a " + std::string(to_text(type));
  }
}

// A key as messages quote it.
std::string shown(const std::string& key) {
  constexpr std::size_t kMax = 60;
  return key.size() <= kMax ? key : key.substr(0, kMax) + "...";
}

std::string last_word(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// Checks one value, or one item of a list, against one field.
class ValueCheck {
 public:
  ValueCheck(const Field& field, const std::string& path, const Entry& entry, Report& report)
      : field_(field), path_(path), entry_(entry), report_(report) {}

  bool run() {
    if (field_.type != FieldType::kList) return fits(field_.type, entry_.value, path_);
    if (entry_.value.kind != ValueKind::kList) return wrong_type(field_.type, entry_.value, path_);
    bool good = true;
    for (std::size_t i = 0; i < entry_.value.items.size(); ++i)
      good &= fits(field_.element, entry_.value.items[i], path_ + strf("[%zu]", i));
    return good;
  }

 private:
  bool fits(FieldType type, const Value& value, const std::string& path) {
    const ValueKind kind = value.kind;
    switch (type) {
      case FieldType::kInt:
        if (kind != ValueKind::kInt) break;
        return in_range(static_cast<double>(value.integer), value, path);
      case FieldType::kReal:
        if (kind == ValueKind::kInt)
          return in_range(static_cast<double>(value.integer), value, path);
        if (kind == ValueKind::kReal) return in_range(value.real, value, path);
        break;
      case FieldType::kBool:
        if (kind == ValueKind::kBool) return true;
        break;
      case FieldType::kString:
        if (kind == ValueKind::kString) return not_empty(value, path);
        break;
      case FieldType::kChoice:
        if (kind == ValueKind::kString) return one_of(value, path);
        break;
      case FieldType::kBytes:
        return size(value, path);
      case FieldType::kList:
        break;
      case FieldType::kTables:
        if (kind == ValueKind::kList && std::ranges::all_of(value.items, [](const Value& item) {
              return item.kind == ValueKind::kTable;
            }))
          return true;
        break;
    }
    return wrong_type(type, value, path);
  }

  bool refuse(Code code, std::string message, const Value& value, std::string label,
              std::string help) {
    report_.add({.code = code,
                 .message = std::move(message),
                 .primary = {value.span, std::move(label)},
                 .secondary = {},
                 .notes = {},
                 .help = std::move(help)});
    return false;
  }

  std::string advice() const {
    std::string text = join_parts("`", last_word(field_.path), "` takes ", accepts(field_));
    if (!field_.initial.empty()) text += "; the default is " + field_.initial;
    return text;
  }

  bool wrong_type(FieldType type, const Value& value, const std::string& path) {
    std::string help = advice();
    const std::string key = last_word(field_.path);
    const bool numeric = type == FieldType::kInt || type == FieldType::kReal;
    const bool digits = value.kind == ValueKind::kString && !value.text.empty() &&
                        value.text.find_first_not_of("0123456789") == std::string::npos;
    const bool is_text = type == FieldType::kString || type == FieldType::kChoice;
    if (numeric && digits) help = "remove the quotes: " + key + " = " + value.text;
    if (type == FieldType::kInt && value.kind == ValueKind::kReal &&
        value.real == std::floor(value.real) && std::abs(value.real) < 1e15)
      help = "write " + key + " = " + number(value.real);
    if (is_text && value.kind != ValueKind::kList && value.kind != ValueKind::kTable)
      help = "text needs quotes: " + key + " = \"" + to_text(value) + "\"";
    std::string kind(to_text(value.kind));
    // "must be a whole number, not a number" would be a riddle.
    if (type == FieldType::kInt && value.kind == ValueKind::kReal)
      kind = value.real == std::floor(value.real) ? "a decimal number" : "a fraction";
    return refuse(Code::kWrongType,
                  "`" + path + "` must be " + with_article(type) + ", not " + kind, value,
                  "this is " + kind, help);
  }

  bool in_range(double number_value, const Value& value, const std::string& path) {
    const bool low = field_.above_min ? number_value > field_.min : number_value >= field_.min;
    const bool oversized = value.kind == ValueKind::kInt && !value.text.empty();
    if (low && number_value <= field_.max && std::isfinite(number_value) && !oversized) return true;
    std::string must = range_text(field_, number_value > field_.max);
    std::string label =
        number_value > field_.max || (oversized && value.integer > 0) ? "too large" : "too small";
    if (oversized && (must.empty() || !std::isfinite(field_.max)))
      must = "a number that fits in 64 bits";
    if (!std::isfinite(number_value)) must = "a finite number", label = "not finite";
    if (!field_.unit.empty()) must += " " + field_.unit;
    return refuse(Code::kOutOfRange, "`" + path + "` must be " + must + ", not " + to_text(value),
                  value, std::move(label), advice());
  }

  bool not_empty(const Value& value, const std::string& path) {
    if (!value.text.empty()) return true;
    return refuse(Code::kOutOfRange, "`" + path + "` must not be empty", value, "", advice());
  }

  bool one_of(const Value& value, const std::string& path) {
    if (std::ranges::find(field_.choices, value.text) != field_.choices.end()) return true;
    for (const auto& [name, why] : field_.refused)
      if (name == value.text)
        return refuse(Code::kUnknownChoice, "`" + path + "` = \"" + name + "\" is refused: " + why,
                      value, "", "use one of " + listed(field_.choices, "or"));
    std::string help = did_you_mean(value.text, field_.choices);
    if (!help.empty()) help += " ";
    return refuse(Code::kUnknownChoice, "`" + path + "` has no choice `" + shown(value.text) + "`",
                  value, "unknown choice", help + "the choices are " + listed(field_.choices));
  }

  bool size(const Value& value, const std::string& path) {
    if (value.kind == ValueKind::kInt)
      return value.integer < 0 ? refuse(Code::kOutOfRange, "`" + path + "` must not be negative",
                                        value, "too small", advice())
                               : in_range(static_cast<double>(value.integer), value, path);
    if (value.kind != ValueKind::kString) return wrong_type(FieldType::kBytes, value, path);
    const Result<Bytes> parsed = parse_bytes(value.text);
    if (parsed.ok()) return in_range(static_cast<double>(parsed->value), value, path);
    return refuse(Code::kOutOfRange, "`" + path + "`: " + parsed.error().message, value, "",
                  parsed.error().help.empty() ? advice() : parsed.error().help);
  }

  const Field& field_;
  const std::string& path_;
  const Entry& entry_;
  Report& report_;
};

// Walks a table of the document beside the table of fields.
class Walk {
 public:
  Walk(const FieldTable& table, Report& report, std::string where)
      : table_(table), report_(report), where_(std::move(where)) {}

  void table(const Value& value, const std::string& prefix) {
    for (const Entry& entry : value.entries) {
      const std::string path = prefix + entry.key;
      if (const Field* field = table_.find(path)) {
        check_value(*field, where_ + path, entry, report_);
      } else if (!table_.is_section(path)) {
        unknown(entry, prefix);
      } else if (entry.value.kind == ValueKind::kTable) {
        table(entry.value, path + ".");
      } else {
        not_a_table(entry, path);
      }
    }
  }

  void missing(const Value& root) {
    for (const Field& field : table_.fields()) {
      if (!field.required || find(root, field.path) != nullptr || excused_.contains(field.path))
        continue;
      const std::size_t dot = field.path.rfind('.');
      const std::string section = dot == std::string::npos ? "" : field.path.substr(0, dot);
      const Entry* table = section.empty() ? nullptr : find(root, section);
      Diagnostic d{.code = Code::kMissingKey,
                   .message = "`" + where_ + field.path + "` is missing",
                   .primary = {},
                   .secondary = {},
                   .notes = {},
                   .help = {}};
      if (table != nullptr)
        d.primary = {table->key_span, "`" + last_word(field.path) + "` is not set here"};
      else if (section.empty())
        d.primary = {root.span, ""};
      // "tier[0]." is no table that could be written.
      std::string owner = where_.find('[') == std::string::npos ? where_ + section : section;
      if (owner.ends_with('.')) owner.pop_back();
      d.help = "add " + last_word(field.path) + " = ..." +
               (owner.empty() ? "" : " to [" + owner + "]") + ": " + field.doc;
      report_.add(std::move(d));
    }
  }

 private:
  void not_a_table(const Entry& entry, const std::string& path) {
    excuse_below(path);
    report_.add({.code = Code::kWrongType,
                 .message = "`" + where_ + path + "` must be a table, not " +
                            std::string(to_text(entry.value.kind)),
                 .primary = {entry.value.span, "this is " + std::string(to_text(entry.value.kind))},
                 .secondary = {},
                 .notes = {},
                 .help = "write [" + path + "] and its keys below it"});
  }

  void unknown(const Entry& entry, const std::string& prefix) {
    const bool is_table = entry.value.kind == ValueKind::kTable;
    const std::string inside = prefix.empty()
                                   ? "the " + table_.what() + " file"
                                   : "[" + where_ + prefix.substr(0, prefix.size() - 1) + "]";
    report_.add({.code = Code::kUnknownKey,
                 .message = (is_table ? "no table [" + where_ + prefix + shown(entry.key) + "]"
                                      : "no key `" + shown(entry.key) + "` in " + inside),
                 .primary = {entry.key_span, is_table ? "unknown table" : "unknown key"},
                 .secondary = {},
                 .notes = {},
                 .help = advice(entry.key, prefix)});
  }

  // What was meant: a foreign name for a field, a near name here, the same or a near name in
  // another table, or else what there is. Remembers it, so that it is not called missing as well.
  std::string advice(const std::string& key, const std::string& prefix) {
    for (const Field& field : table_.fields())
      for (const std::string& name : field.known_as)
        if (is_within(0, name, key))
          return excuse(field.path), "here it is called `" + field.path + "`";
    const std::vector<std::string> here = names_in(prefix);
    const std::vector<std::string> close = nearest(key, here);
    if (!close.empty()) {
      for (const std::string& name : close) excuse(prefix + name), excuse_below(prefix + name);
      return did_you_mean(key, here);
    }
    for (const Field& field : table_.fields())
      if (last_word(field.path) == key)
        return excuse(field.path),
               "`" + key + "` belongs to [" + field.path.substr(0, field.path.rfind('.')) + "]";
    for (const Field& field : table_.fields())
      if (is_within(key.size() <= 3 ? 0 : 1, last_word(field.path), key))
        return excuse(field.path), "did you mean `" + field.path + "`?";
    return there_are(here);
  }

  // Keys and tables directly below `prefix`, in the table's order.
  std::vector<std::string> names_in(const std::string& prefix) const {
    std::vector<std::string> names;
    for (const Field& field : table_.fields()) {
      if (!field.path.starts_with(prefix)) continue;
      const std::string rest = field.path.substr(prefix.size());
      const std::string name = rest.substr(0, rest.find('.'));
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
    return names;
  }

  void excuse(const std::string& path) { excused_.insert(path); }
  void excuse_below(const std::string& path) {
    for (const Field& field : table_.fields())
      if (field.path.starts_with(path + ".")) excuse(field.path);
  }

  const FieldTable& table_;
  Report& report_;
  std::string where_;
  std::set<std::string> excused_;
};

}  // namespace

std::string accepts(const Field& field) {
  const FieldType type = field.type == FieldType::kList ? field.element : field.type;
  std::string text = with_article(type);
  if (type == FieldType::kChoice) text = "one of " + listed(field.choices, "or");
  if (type == FieldType::kBytes) text = "a size such as 1024 or \"64 MiB\"";
  const std::string range = range_text(field, false);
  if (!range.empty()) text += ", " + range;
  if (!field.unit.empty()) text += " (" + field.unit + ")";
  return field.type == FieldType::kList ? "a list, each item " + text : text;
}

bool check_value(const Field& field, const std::string& path, const Entry& entry, Report& report) {
  return ValueCheck(field, path, entry, report).run();
}

void check(const Value& table_value, const FieldTable& table, Report& report,
           const std::string& where) {
  Walk walk(table, report, where);
  walk.table(table_value, "");
  walk.missing(table_value);
}

void check(const Document& document, const FieldTable& table, Report& report) {
  check(document.root(), table, report);
}

}  // namespace lockstep::config
