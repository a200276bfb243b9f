// Strict reading of JSON objects whose keys are all known: the first thing that is wrong is remembered,
// and readers after it yield nothing. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/base/json.h"

namespace lockstep::checkpoint {

// The first trouble of a whole text. One thread.
class Trouble {
 public:
  bool any() const { return !text_.empty(); }
  const std::string& text() const { return text_; }
  void add(const std::string& where, const std::string& what) {
    if (text_.empty()) text_ = where + " " + what;
  }

 private:
  std::string text_;
};

// One object. Every key that is asked for must be there, and no other (done()).
class Fields {
 public:
  Fields(const Json& json, std::string where, Trouble& trouble);

  std::int64_t count(std::string_view key);  // a whole number, not negative
  std::string text(std::string_view key);
  std::vector<std::int64_t> counts(std::string_view key);
  Hash128 hash(std::string_view key);
  const Json::Array& list(std::string_view key);
  std::vector<std::pair<std::string, std::string>> facts(std::string_view key);  // of texts
  const Json* get(std::string_view key);                                         // null: trouble

  void done();
  void fail(std::string_view key, const std::string& what);
  const std::string& where() const { return where_; }

 private:
  const Json& json_;
  const std::string where_;
  Trouble& trouble_;
  std::size_t asked_ = 0;
};

// The counts of a JSON list; trouble when it is none, or holds anything else.
std::optional<std::vector<std::int64_t>> counts_in(const Json& json);

// `width` hex digits, lower case.
std::optional<std::uint64_t> parse_hex(std::string_view text);

}  // namespace lockstep::checkpoint
