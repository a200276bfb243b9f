#include "lockstep/config/fields.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
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
  if (type == FieldType::kBool) return "true or false";
  if (type == FieldType::kString || type == FieldType::kChoice) return "text";
  if (type == FieldType::kBytes) return "a size in bytes";
  return "a " + std::string(to_text(type));
}

// A key as messages quote it.
std::string shown(const std::string& key) {
  constexpr std::size_t kMax = 60;
  return key.size() <= kMax ? key : key.substr(0, kMax) + "...";
}

std::string last_word(const std::string& path) { return path.substr(path.rfind('.') + 1); }

double as_real(const Value& value) {
  return value.kind == ValueKind::kInt ? static_cast<double>(value.integer) : value.real;
}

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
    const bool is_text = kind == ValueKind::kString;
    const bool is_number =
        kind == ValueKind::kInt || (kind == ValueKind::kReal && type == FieldType::kReal);
    const auto is_table = [](const Value& item) { return item.kind == ValueKind::kTable; };
    if (type == FieldType::kBytes) return size(value, path);
    if ((type == FieldType::kInt || type == FieldType::kReal) && is_number)
      return in_range(as_real(value), value, path);
    if (type == FieldType::kBool && kind == ValueKind::kBool) return true;
    if (type == FieldType::kString && is_text) return not_empty(value, path);
    if (type == FieldType::kChoice && is_text) return one_of(value, path);
    if (type == FieldType::kTables && kind == ValueKind::kList &&
        std::ranges::all_of(value.items, is_table))
      return true;
    return wrong_type(type, value, path);
  }

  bool refuse(Code code, std::string message, const Value& value, std::string label,
              std::string help) {
    report_.add({code, std::move(message), std::move(help)}, {value.span, std::move(label)});
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
    for (const auto& [elsewhere, here] : field_.renamed)
      if (is_within(0, elsewhere, value.text)) help = "here it is called `" + here + "`;";
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
      if (const Field* field = table_.find(path))
        ValueCheck(*field, where_ + path, entry, report_).run();
      else if (!table_.is_section(path))
        unknown(entry, prefix);
      else if (entry.value.kind == ValueKind::kTable)
        table(entry.value, path + ".");
      else
        not_a_table(entry, path);
    }
  }

  void missing(const Value& root) {
    for (const Field& field : table_.fields()) {
      if (!field.required || find(root, field.path) != nullptr || excused_.contains(field.path))
        continue;
      const std::size_t dot = field.path.rfind('.');
      const std::string section = dot == std::string::npos ? "" : field.path.substr(0, dot);
      const Entry* table = section.empty() ? nullptr : find(root, section);
      const std::string key = last_word(field.path);
      Label place;
      if (table != nullptr)
        place = {table->key_span, "`" + key + "` is not set here"};
      else if (section.empty())
        place = root.span;
      // "tier[0]." is no table that could be written.
      std::string owner = where_.find('[') == std::string::npos ? where_ + section : section;
      if (owner.ends_with('.')) owner.pop_back();
      if (!owner.empty()) owner = " to [" + owner + "]";
      report_.add({Code::kMissingKey, "`" + where_ + field.path + "` is missing",
                   "add " + key + " = ..." + owner + ": " + field.doc},
                  place);
    }
  }

 private:
  void not_a_table(const Entry& entry, const std::string& path) {
    excuse_below(path);
    const std::string kind(to_text(entry.value.kind));
    report_.add({Code::kWrongType, "`" + where_ + path + "` must be a table, not " + kind,
                 "write [" + path + "] and its keys below it"},
                {entry.value.span, "this is " + kind});
  }

  void unknown(const Entry& entry, const std::string& prefix) {
    const bool is_table = entry.value.kind == ValueKind::kTable;
    const std::string inside = prefix.empty()
                                   ? "the " + table_.what() + " file"
                                   : "[" + where_ + prefix.substr(0, prefix.size() - 1) + "]";
    report_.add({Code::kUnknownKey,
                 is_table ? "no table [" + where_ + prefix + shown(entry.key) + "]"
                          : "no key `" + shown(entry.key) + "` in " + inside,
                 is_table && prefix.empty() ? table_advice(entry) : advice(entry.key, prefix)},
                {entry.key_span, is_table ? "unknown table" : "unknown key"});
  }

  // What was meant: a foreign name for a field, a near name here, the same or a near name in
  // another table, or else what there is. Remembers it, so that it is not called missing as well.
  std::string advice(const std::string& key, const std::string& prefix) {
    if (const Field* field = table_.find_known_as(key))
      return excuse(field->path), "here it is called `" + field->path + "`";
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

  // Of a table of another name: those its keys belong to.
  std::string table_advice(const Entry& entry) {
    std::vector<std::string> owners;
    for (const Entry& inner : entry.value.entries) {
      const auto has_its_name = [&](const Field& field) {
        return field.path.find('.') != std::string::npos && last_word(field.path) == inner.key;
      };
      const auto own = std::ranges::find_if(table_.fields(), has_its_name);
      const Field* field = own == table_.fields().end() ? table_.find_known_as(inner.key) : &*own;
      if (field == nullptr) continue;
      excuse(field->path);
      const std::string owner = "[" + field->path.substr(0, field->path.rfind('.')) + "]";
      if (std::ranges::find(owners, owner) == owners.end()) owners.push_back(owner);
    }
    if (owners.empty() || !nearest(entry.key, names_in("")).empty()) return advice(entry.key, "");
    return "its keys belong to " + listed(owners);
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

std::string_view to_text(FieldType type) {
  constexpr std::array<std::string_view, 8> kTexts = {
      "whole number", "number", "true or false", "text",
      "choice",       "size",   "list",          "list of tables"};
  return kTexts.at(static_cast<std::size_t>(type));
}

FieldTable::FieldTable(std::string what, std::vector<Field> fields)
    : what_(std::move(what)), fields_(std::move(fields)) {
  std::set<std::string_view> seen;
  for (const Field& field : fields_) {
    LS_CHECK(seen.insert(field.path).second, "field ", field.path, " appears twice");
    LS_CHECK(field.initial.empty() || !field.required, field.path,
             " is required yet has a default");
    if (field.initial.empty()) {
      initials_.emplace_back();
      continue;
    }
    Report report;
    auto parsed = parse_document("v = " + field.initial, "default", Format::kToml, report);
    LS_CHECK(parsed && ValueCheck(field, field.path, parsed->root().entries.front(), report).run(),
             "default of ", field.path, ": ", report.text("", false));
    initials_.emplace_back(parsed->root().entries.front().value);
    initials_.back()->span = {};
    initials_.back()->origin = Origin::kDefault;
  }
}

const Field* FieldTable::find(std::string_view path) const {
  const auto found = std::ranges::find(fields_, path, &Field::path);
  return found == fields_.end() ? nullptr : &*found;
}

const Field* FieldTable::find_known_as(std::string_view name) const {
  const auto found = std::ranges::find_if(fields_, [&](const Field& field) {
    return std::ranges::any_of(field.known_as,
                               [&](const std::string& other) { return is_within(0, other, name); });
  });
  return found == fields_.end() ? nullptr : &*found;
}

bool FieldTable::is_section(std::string_view path) const {
  const std::string lead = std::string(path) + ".";
  return std::ranges::any_of(fields_, [&](const Field& f) { return f.path.starts_with(lead); });
}

const Value* FieldTable::initial_of(std::string_view path) const {
  const Field* field = find(path);
  LS_CHECK(field != nullptr, "no field ", path, " in the ", what_, " table");
  const auto& initial = initials_[field - fields_.data()];
  return initial ? &*initial : nullptr;
}

std::string variable_of(const Field& field) {
  std::string name = "LOCKSTEP_" + field.path;
  for (char& c : name) {
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (c == '.' || c == '-') c = '_';
  }
  return name;
}

void apply_environment(const FieldTable& table, const EnvironmentLookup& lookup, Document& document,
                       Report& report) {
  for (const Field& field : table.fields()) {
    const std::optional<std::string> text = lookup(variable_of(field));
    if (text && !text->empty())
      apply_variable(variable_of(field), field.path, *text, document, report);
  }
}

void check_variables(const FieldTable& table, std::span<const std::string> names, Report& report) {
  std::vector<std::string> known;
  std::set<std::string> leads;
  for (const Field& field : table.fields()) {
    known.push_back(variable_of(field));
    const std::size_t dot = field.path.find('.');
    if (dot == std::string::npos) continue;
    leads.insert(known.back().substr(0, std::string_view("LOCKSTEP_").size() + dot + 1));
  }
  for (const std::string& name : names) {
    const bool ours =
        std::ranges::any_of(leads, [&](const std::string& lead) { return name.starts_with(lead); });
    if (!ours || std::ranges::find(known, name) != known.end()) continue;
    const int line = report.sources.append_line("environment", name);
    const std::string advice = did_you_mean(name, known);
    report.add({Code::kUnknownKey, "no key belongs to the variable `" + name + "`",
                advice.empty() ? "unset it" : advice},
               Span{"environment", line, 1, static_cast<int>(name.size())});
  }
}

const Value* Settings::usable(std::string_view path, std::initializer_list<FieldType> types) const {
  const Field* field = table_.find(path);
  LS_CHECK(field != nullptr, "no field ", path, " in the ", table_.what(), " table");
  LS_CHECK(std::ranges::count(types, field->type) > 0, path, " is a ", to_text(field->type));
  const Entry* entry = find(root_, path);
  if (entry == nullptr) return table_.initial_of(path);
  Report unread;
  return ValueCheck(*field, field->path, *entry, unread).run() ? &entry->value : nullptr;
}

const Value* Settings::usable_list(std::string_view path,
                                   std::initializer_list<FieldType> elements) const {
  const Value* value = usable(path, {FieldType::kList});
  const FieldType element = table_.find(path)->element;
  LS_CHECK(std::ranges::count(elements, element) > 0, path, " lists ", to_text(element));
  return value;
}

std::optional<std::int64_t> Settings::integer(std::string_view path) const {
  const Value* value = usable(path, {FieldType::kInt});
  return value ? std::optional(value->integer) : std::nullopt;
}

std::optional<double> Settings::real(std::string_view path) const {
  const Value* value = usable(path, {FieldType::kReal});
  return value ? std::optional(as_real(*value)) : std::nullopt;
}

std::optional<bool> Settings::boolean(std::string_view path) const {
  const Value* value = usable(path, {FieldType::kBool});
  return value ? std::optional(value->boolean) : std::nullopt;
}

std::optional<std::string> Settings::text(std::string_view path) const {
  const Value* value = usable(path, {FieldType::kString, FieldType::kChoice});
  return value ? std::optional(value->text) : std::nullopt;
}

std::optional<Bytes> Settings::bytes(std::string_view path) const {
  const Value* value = usable(path, {FieldType::kBytes});
  if (value == nullptr) return std::nullopt;
  return value->kind == ValueKind::kInt ? Bytes{value->integer} : parse_bytes(value->text).value();
}

std::vector<double> Settings::reals(std::string_view path) const {
  std::vector<double> result;
  if (const Value* value = usable_list(path, {FieldType::kReal}))
    for (const Value& item : value->items) result.push_back(as_real(item));
  return result;
}

std::vector<std::string> Settings::texts(std::string_view path) const {
  std::vector<std::string> result;
  if (const Value* value = usable_list(path, {FieldType::kString, FieldType::kChoice}))
    for (const Value& item : value->items) result.push_back(item.text);
  return result;
}

bool Settings::is_refused(std::string_view path) const {
  const Field* field = table_.find(path);
  LS_CHECK(field != nullptr, "no field ", path, " in the ", table_.what(), " table");
  return is_set(path) && usable(path, {field->type}) == nullptr;
}

bool Settings::is_set(std::string_view path) const { return find(root_, path) != nullptr; }

Span Settings::span(std::string_view path) const {
  const Entry* entry = find(root_, path);
  if (entry == nullptr) return {};
  Span span = entry->key_span;
  const Span& value = entry->value.span;
  if (value.file == span.file && value.line == span.line)
    span.length = value.column + value.length - span.column;
  return span;
}

std::string brief(const Field& field) {
  constexpr std::size_t kLong = 100;
  std::string text = field.doc.substr(0, field.doc.find(". "));
  if (text.ends_with('.')) text.pop_back();
  return text.size() <= kLong ? text : text.substr(0, text.find_first_of(",:;"));
}

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

void check(const Value& table_value, const FieldTable& table, Report& report,
           const std::string& where) {
  Walk walk(table, report, where);
  walk.table(table_value, "");
  walk.missing(table_value);
}

void check(const Document& document, const FieldTable& table, Report& report) {
  check(document.root(), table, report);
}

std::string fields_text(const FieldTable& table, int width) {
  std::string out;
  for (const Field& field : table.fields()) {
    out += field.path;
    if (field.required)
      out += "  (required)";
    else if (!field.required_unless.empty())
      out += "  (required unless " + field.required_unless + ")";
    else
      out += field.initial.empty() ? "  (optional)" : " = " + field.initial;
    out += '\n';
    out += wrapped(field.doc, 4, 0, width);
    out += wrapped(join_parts("Takes ", accepts(field), "."), 4, 0, width);
  }
  return out;
}

Json fields_json(const FieldTable& table) {
  Json list = Json::array();
  for (const Field& field : table.fields()) {
    const Value* initial = table.initial_of(field.path);
    const auto limit = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
    list.push(Json::object(
        {{"path", field.path},
         {"type", to_text(field.type)},
         {"unit", field.unit.empty() ? Json() : Json(field.unit)},
         {"min", limit(field.min)},
         {"max", limit(field.max)},
         {"choices", Json::list(field.choices)},
         {"required", field.required},
         {"required_unless", field.required_unless.empty() ? Json() : Json(field.required_unless)},
         {"default", initial ? to_json(*initial) : Json()},
         {"env", variable_of(field)},
         {"since", field.since},
         {"doc", field.doc}}));
  }
  return list;
}

}  // namespace lockstep::config
