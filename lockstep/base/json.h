// A JSON value. Objects keep the order in which their keys were written, so files read the way they
// were meant and equal values dump to equal bytes.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/result.h"

namespace lockstep {

// A value like any other: copies are deep, and any thread may read one that nobody changes.
class Json {
 public:
  enum class Kind : std::uint8_t { kNull, kBool, kInt, kReal, kText, kArray, kObject };

  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;  // no two members have the same key

  Json();  // null
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  // Implicit, so that values can be listed plainly: Json::array({1, "two", 3.0}).
  Json(std::nullptr_t) : Json() {}
  Json(std::same_as<bool> auto value) : value_(std::in_place_type<bool>, value) {}
  Json(double value);
  Json(std::string text);  // UTF-8
  Json(std::string_view text) : Json(std::string(text)) {}
  Json(const char* text) : Json(std::string(text)) {}
  // REQUIRES: the number fits into std::int64_t.
  template <std::integral Int>
    requires(!std::same_as<Int, bool> && !std::same_as<Int, char>)
  Json(Int value);

  static Json array(Array items = {});
  // An array with an item for each of `range`, made of what `to` returns for it.
  template <class Range, class To = std::identity>
  static Json list(const Range& range, To to = {});
  static Json object();
  static Json object(Object members);  // REQUIRES: no key twice

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_int() const { return kind() == Kind::kInt; }
  bool is_number() const { return is_int() || kind() == Kind::kReal; }
  bool is_text() const { return kind() == Kind::kText; }
  bool is_array() const { return kind() == Kind::kArray; }
  bool is_object() const { return kind() == Kind::kObject; }

  // REQUIRES of each: the kind in its name. Of values from a file, ask the kind first.
  bool as_bool() const;
  std::int64_t as_int() const;
  double as_real() const;  // of an int too
  const std::string& as_text() const;
  const Array& items() const;
  Array& items();
  const Object& members() const;

  // The value of `key`, or null pointer; looks at one member after the other. REQUIRES:
  // is_object().
  const Json* find(std::string_view key) const;
  // Replaces the value of `key`, or appends it. Returns *this, for chains. REQUIRES: is_object().
  Json& set(std::string key, Json value);
  // REQUIRES: is_array().
  Json& push(Json value);

  // On one line without spaces, or, with `indent` > 0, one item per line. Reals take the fewest
  // digits that read back to the same bits and always show that they are reals (2.0). JSON has no
  // word for non-finite reals; they become the texts "NaN", "Infinity" and "-Infinity". Bytes that
  // are not UTF-8 become U+FFFD.
  std::string dump(int indent = 0) const;

  // Strict JSON (RFC 8259), and refuses what would lose something: a key twice in one object, whole
  // numbers beyond 64 signed bits, reals beyond double, nesting deeper than 512. The message of the
  // Error (kSyntax) begins with "line:column: ", both from 1, the column in bytes.
  static Result<Json> parse(std::string_view text);

  bool operator==(const Json& other) const;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

struct Json::Member {
  std::string key;
  Json value;
  bool operator==(const Member&) const = default;
};

// Here, where Member is complete: clang needs it to build the variant.
template <std::integral Int>
  requires(!std::same_as<Int, bool> && !std::same_as<Int, char>)
Json::Json(Int value) : value_(std::in_place_type<std::int64_t>, static_cast<std::int64_t>(value)) {
  LS_CHECK(std::in_range<std::int64_t>(value), value, " does not fit into 64 signed bits");
}

template <class Range, class To>
Json Json::list(const Range& range, To to) {
  Array made;
  for (const auto& item : range) made.emplace_back(std::invoke(to, item));
  return array(std::move(made));
}

}  // namespace lockstep
