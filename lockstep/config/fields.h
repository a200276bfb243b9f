// One table describes every key of a kind of file. Validation, typed look-up, help, the
// documentation page and `lockstep config fields` are all read from it, so they cannot disagree.
//
//   const FieldTable& cluster_fields() {
//     static const FieldTable table("cluster", {
//         {.path = "node.devices", .type = FieldType::kInt, .doc = "Devices in one node.",
//          .required = true, .min = 1},
//         {.path = "node.dtype", .type = FieldType::kChoice, .doc = "...", .initial = "\"bf16\"",
//          .choices = {"f32", "bf16"}}});
//     return table;
//   }
//   Report report;
//   auto document = load_document(path, report);
//   if (document) check(*document, cluster_fields(), report);
//   if (!report.ok()) return report.first_error();
//   const Settings settings(document->root(), cluster_fields());
//   const std::int64_t devices = *settings.integer("node.devices");
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/base/units.h"
#include "lockstep/config/document.h"

namespace lockstep::config {

enum class FieldType : std::uint8_t {
  kInt,     // whole number
  kReal,    // a whole number is accepted too
  kBool,    //
  kString,  //
  kChoice,  // text, one of `choices`
  kBytes,   // whole number of bytes, or text such as "64 MiB"
  kList,    // list of `element`
  kTables,  // list of tables; what is in them is checked by the caller, each with its own table
};

std::string_view to_text(FieldType type);  // "whole number", "number", "true or false", ...

struct Field {
  std::string path = {};  // "layout.tp"
  FieldType type = FieldType::kString;
  std::string doc = {};      // one sentence with a full stop
  std::string initial = {};  // default as TOML text: 1, "\"bf16\"", true; empty: no default
  bool required = false;     // absent is an error; a required field has no default
  // "`like` is given": the field is required unless that holds, which the caller checks.
  std::string required_unless = {};
  std::string unit = {};                                  // "tokens", "GB/s"; empty: none
  double min = -std::numeric_limits<double>::infinity();  // inclusive
  double max = std::numeric_limits<double>::infinity();   // inclusive
  bool above_min = false;                                 // the minimum itself is refused
  std::vector<std::string> choices = {};
  std::vector<std::pair<std::string, std::string>> refused = {};  // known values refused, and why
  std::vector<std::pair<std::string, std::string>> renamed = {};  // values elsewhere, and here
  FieldType element = FieldType::kString;                         // of a kList
  std::vector<std::string> known_as = {};  // names of the same thing elsewhere, for suggestions
  std::string since = "0.1";
};

// Immutable. Order of the fields is the order of every listing.
class FieldTable {
 public:
  // `what` names the kind of file: "run". A path that appears twice, or a default that does not
  // fit its own field, is a broken invariant.
  FieldTable(std::string what, std::vector<Field> fields);

  const std::string& what() const { return what_; }
  std::span<const Field> fields() const { return fields_; }
  const Field* find(std::string_view path) const;
  // The field of that name elsewhere, case and the choice of '-', '_' or '.' not counting.
  const Field* find_known_as(std::string_view name) const;
  bool is_section(std::string_view path) const;          // some field lies below it
  const Value* initial_of(std::string_view path) const;  // nullptr: no default

 private:
  std::string what_;
  std::vector<Field> fields_;
  std::vector<std::optional<Value>> initials_;  // beside fields_
};

// Adds a diagnostic for every unknown key, wrong type, value out of range, unknown choice and
// missing key of `table_value`. `where` is written before the keys in messages ("tier[0].").
void check(const Value& table_value, const FieldTable& table, Report& report,
           const std::string& where = "");
void check(const Document& document, const FieldTable& table, Report& report);

// Sets every key for which `lookup("LOCKSTEP_" + path in capitals, dots as underscores)` gives a
// value. Pass std::getenv wrapped, or a fake.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string&)>;
void apply_environment(const FieldTable& table, const EnvironmentLookup& lookup, Document& document,
                       Report& report);
std::string variable_of(const Field& field);  // "LOCKSTEP_LAYOUT_TP"

// Reports every name that begins like a key of one of the table's sections ("LOCKSTEP_LAYOUT_") and
// is none. `names` are those of all variables that are set.
void check_variables(const FieldTable& table, std::span<const std::string> names, Report& report);

// Typed look-up of checked values. Nothing when the key is absent and has no default, or when its
// value was refused by check(), so that rules about several keys can still run on the others. A
// path that is not in the table, or asked for as another type, is a broken invariant. Refers to
// both arguments; keep them alive.
class Settings {
 public:
  Settings(const Value& table_value, const FieldTable& table) : root_(table_value), table_(table) {}

  std::optional<std::int64_t> integer(std::string_view path) const;  // kInt
  std::optional<double> real(std::string_view path) const;           // kReal
  std::optional<bool> boolean(std::string_view path) const;          // kBool
  std::optional<std::string> text(std::string_view path) const;      // kString, kChoice
  std::optional<Bytes> bytes(std::string_view path) const;           // kBytes
  // kList of the asked-for element; empty when absent without a default.
  std::vector<double> reals(std::string_view path) const;
  std::vector<std::string> texts(std::string_view path) const;

  bool is_set(std::string_view path) const;  // written somewhere, not a default
  // Written, but refused by check(); tells a refused list from an empty one.
  bool is_refused(std::string_view path) const;
  // Key and value as one span, for the labels of rules about several keys; unknown for a default.
  Span span(std::string_view path) const;

 private:
  const Value* usable(std::string_view path, std::initializer_list<FieldType> types) const;
  const Value* usable_list(std::string_view path, std::initializer_list<FieldType> elements) const;

  const Value& root_;
  const FieldTable& table_;
};

// What it is about: the first sentence of its doc without the full stop, or what that begins with
// where it is long.
std::string brief(const Field& field);

// What values a field takes, in words: "a whole number, at least 1 (tokens)".
std::string accepts(const Field& field);

// Listings of the table: aligned text at most `width` wide, and JSON.
std::string fields_text(const FieldTable& table, int width);
Json fields_json(const FieldTable& table);

}  // namespace lockstep::config
