// A configuration file as a tree in which every key and value knows where it was written. TOML and
// JSON read into the same tree; overrides and environment variables are merged into it and keep
// their own origin.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/config/diagnostic.h"

namespace lockstep::config {

// Who set a value, weakest first; a stronger origin replaces a weaker one. A derived value follows
// from others and stands in no document.
enum class Origin : std::uint8_t { kDefault, kDerived, kBase, kFile, kEnvironment, kFlag };

std::string_view to_text(Origin origin);  // "default", "derived", "base", "file", ...

enum class ValueKind : std::uint8_t { kBool, kInt, kReal, kString, kDate, kList, kTable };

std::string_view to_text(ValueKind kind);  // "a whole number", "text", ...: for "... not text"

struct Entry;

struct Value {
  ValueKind kind = ValueKind::kTable;
  bool boolean = false;      // kBool
  std::int64_t integer = 0;  // kInt
  double real = 0;           // kReal
  // kString; kDate as written; of a kInt empty, or as written when it does not fit in 64 bits, and
  // then `integer` is the nearest that does.
  std::string text;
  std::vector<Value> items;    // kList
  std::vector<Entry> entries;  // kTable, in the order written
  Span span;                   // of the value as written
  Origin origin = Origin::kFile;

  // Entry of a kTable by its own key (no dots); nullptr when there is none.
  const Entry* find(std::string_view key) const;
};

struct Entry {
  std::string key;
  Span key_span;
  Value value;
};

// The entry at a dotted path below `table`; nullptr when any part is absent.
const Entry* find(const Value& table, std::string_view path);

// As TOML: 8, 1.5, "text", [1, 2], { a = 1 }.
std::string to_text(const Value& value);
Json to_json(const Value& value);  // a date becomes text

enum class Format : std::uint8_t { kToml, kJson };

// Whether a word that may be a name or a file looks like a file: it ends in .toml or .json, or
// contains a `/`. And whether there is a file or directory of that name.
bool looks_like_a_file(std::string_view word);
bool is_there(std::string_view word);

class Document {
 public:
  Document() = default;
  explicit Document(Value root) : root_(std::move(root)) {}

  const Value& root() const { return root_; }

  const Entry* find(std::string_view path) const { return config::find(root_, path); }

  // Values of `over` replace ours key by key; tables merge, lists are replaced whole.
  void merge(const Document& over);

  // Puts `value` at a dotted path, making tables on the way (and replacing what is no table).
  void set(std::string_view path, const Span& key_span, Value value);

 private:
  Value root_;
};

// Levels of tables, lists and dotted names in one setting or header; more is a syntax error.
constexpr int kMaxNesting = 64;

// Parses `text`. On a syntax error adds one kSyntax diagnostic and returns nothing. Registers the
// text in report.sources under `name`.
std::optional<Document> parse_document(std::string text, const std::string& name, Format format,
                                       Report& report);

// Reads a file and, when it has a top-level key `extends = "base.toml"` (relative to that file),
// its bases, which it overrides. The key itself is removed. A missing file is kFileUnreadable; a
// circle of bases is kConflict.
std::optional<Document> load_document(const std::string& path, Report& report);

// Applies "a.b=value" (the text after --set) over `document`. The value is read as TOML; a word
// that is no TOML value is taken as text, so dtype=bf16 needs no quotes. False, with a diagnostic,
// when there is no "=" or the key is not a dotted path.
bool apply_override(std::string_view assignment, Document& document, Report& report);

// The same for an environment variable whose key is already known.
bool apply_variable(const std::string& variable, std::string_view path, std::string_view value,
                    Document& document, Report& report);

}  // namespace lockstep::config
