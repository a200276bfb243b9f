#include "lockstep/config/fields.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/config/suggest.h"

namespace lockstep::config {

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
    LS_CHECK(parsed && check_value(field, field.path, parsed->root().entries.front(), report),
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

bool FieldTable::is_section(std::string_view path) const {
  const std::string lead = std::string(path) + ".";
  return std::ranges::any_of(fields_, [&](const Field& f) { return f.path.starts_with(lead); });
}

const Value* FieldTable::initial_of(std::string_view path) const {
  const Field* field = find(path);
  LS_CHECK(field != nullptr, "no field ", path, " in the ", what_, " table");
  const auto& initial = initials_[static_cast<std::size_t>(field - fields_.data())];
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
    report.add({.code = Code::kUnknownKey,
                .message = "no key belongs to the variable `" + name + "`",
                .primary = {{"environment", line, 1, static_cast<int>(name.size())}, ""},
                .secondary = {},
                .notes = {},
                .help = advice.empty() ? "unset it" : advice});
  }
}

const Value* Settings::usable(std::string_view path, std::initializer_list<FieldType> types) const {
  const Field* field = table_.find(path);
  LS_CHECK(field != nullptr, "no field ", path, " in the ", table_.what(), " table");
  LS_CHECK(std::ranges::find(types, field->type) != types.end(), path, " is a ",
           to_text(field->type));
  const Entry* entry = find(root_, path);
  if (entry == nullptr) return table_.initial_of(path);
  Report unread;
  return check_value(*field, field->path, *entry, unread) ? &entry->value : nullptr;
}

const Value* Settings::usable_list(std::string_view path,
                                   std::initializer_list<FieldType> elements) const {
  const Value* value = usable(path, {FieldType::kList});
  const FieldType element = table_.find(path)->element;
  LS_CHECK(std::ranges::find(elements, element) != elements.end(), path, " lists ",
           to_text(element));
  return value;
}

std::optional<std::int64_t> Settings::integer(std::string_view path) const {
  const Value* value = usable(path, {FieldType::kInt});
  return value ? std::optional(value->integer) : std::nullopt;
}

namespace {
double as_real(const Value& value) {
  return value.kind == ValueKind::kInt ? static_cast<double>(value.integer) : value.real;
}
}  // namespace

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

}  // namespace lockstep::config
