#include "lockstep/base/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>

namespace lockstep {
namespace {

constexpr std::size_t kMaxDepth = 512;

// --- dump ---

std::string quoted(const std::string& text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string number_text(double x) {
  if (std::isnan(x)) return "\"NaN\"";
  if (std::isinf(x)) return x < 0 ? "\"-Infinity\"" : "\"Infinity\"";
  std::array<char, 32> text;
  const auto [end, status] = std::to_chars(text.data(), text.data() + text.size(), x);
  LS_CHECK(status == std::errc());
  std::string shortest(text.data(), end);
  if (shortest.find_first_of(".e") == std::string::npos) shortest += ".0";
  return shortest;
}

std::string scalar(const Json& json) {
  if (json.is_null()) return "null";
  if (json.is_bool()) return json.as_bool() ? "true" : "false";
  if (json.is_int()) return std::to_string(json.as_int());
  return json.is_text() ? quoted(json.as_text()) : number_text(json.as_real());
}

class Dumper {
 public:
  explicit Dumper(int indent) : indent_(indent) {}

  void write(const Json& json) {
    if (json.is_array()) {
      write_list('[', json.items(), ']', [&](const Json& item) { write(item); });
    } else if (json.is_object()) {
      write_list('{', json.members(), '}', [&](const Json::Member& member) {
        out_ += quoted(member.key) + (indent_ > 0 ? ": " : ":");
        write(member.value);
      });
    } else {
      out_ += scalar(json);
    }
  }

  std::string take() { return std::move(out_); }

 private:
  template <class List, class WriteItem>
  void write_list(char open, const List& list, char close, WriteItem write_item) {
    out_ += open;
    ++depth_;
    bool first = true;
    for (const auto& item : list) {
      if (!first) out_ += ',';
      first = false;
      break_line();
      write_item(item);
    }
    --depth_;
    if (!list.empty()) break_line();
    out_ += close;
  }

  void break_line() {
    if (indent_ > 0) out_ += '\n' + std::string(indent_ * depth_, ' ');
  }

  int indent_;
  int depth_ = 0;
  std::string out_;
};

// --- parse ---

// Walks over the text and tells how far it has come: the events of the parser carry no position.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() { return *furthest_ = ++at_, *this; }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

// Receives the events of nlohmann's parser; a handler that returns false ends the parse.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(std::string_view text) : text_(text), furthest_(text.data()) {}

  Result<Json> build() {
    const char* end = text_.data() + text_.size();
    const bool complete = nlohmann::json::sax_parse(CountingIterator(text_.data(), &furthest_),
                                                    CountingIterator(end, &furthest_), this);
    if (!complete) return std::move(error_);
    return std::move(root_);
  }

  bool null() override { return place(nullptr); }
  bool boolean(bool value) override { return place(value); }
  bool number_integer(number_integer_t value) override { return place(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (!std::in_range<std::int64_t>(value)) return refuse_whole(std::to_string(value));
    return place(value);
  }
  // Whole numbers beyond 64 bits arrive here, already rounded.
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) return refuse_whole(text);
    return place(value);
  }
  bool string(string_t& text) override { return place(std::move(text)); }
  bool binary(binary_t&) override { return false; }

  bool start_array(std::size_t) override { return open(false); }
  bool end_array() override { return close(); }
  bool start_object(std::size_t) override { return open(true); }
  bool end_object() override { return close(); }
  bool key(string_t& key) override {
    if (!open_.back().keys.insert(key).second)
      return refuse(start_of_string(), "key \"" + key + "\" appears twice in one object",
                    "keep one of the two");
    open_.back().key = std::move(key);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception...] parse error at line 1, column 2: what" or "[json.exception...] what".
    std::string what = error.what();
    what.erase(0, what.find("] ") + 2);
    if (what.starts_with("parse error at")) what.erase(0, what.find(": ") + 2);
    return refuse(position == 0 ? 0 : position - 1, what);
  }

 private:
  struct Open {
    bool is_object;
    Json::Array items;
    Json::Object members;
    std::string key;                       // of the member being read
    std::unordered_set<std::string> keys;  // a linear search would take quadratic time
  };

  bool place(Json value) {
    if (open_.empty())
      root_ = std::move(value);
    else if (open_.back().is_object)
      open_.back().members.push_back({std::move(open_.back().key), std::move(value)});
    else
      open_.back().items.push_back(std::move(value));
    return true;
  }

  bool open(bool is_object) {
    if (open_.size() == kMaxDepth)
      return refuse(offset() - 1, join_parts("nesting is deeper than ", kMaxDepth, " levels"));
    open_.push_back({is_object, {}, {}, {}, {}});
    return true;
  }

  bool close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    return place(done.is_object ? Json::object(std::move(done.members))
                                : Json::array(std::move(done.items)));
  }

  std::size_t offset() const { return static_cast<std::size_t>(furthest_ - text_.data()); }

  // Of the string whose closing quote was read last.
  std::size_t start_of_string() const {
    for (std::size_t quote = offset() - 1;;) {
      quote = text_.rfind('"', quote - 1);
      const std::size_t other = text_.find_last_not_of('\\', quote - 1);
      if ((quote - 1 - other) % 2 == 0) return quote;
    }
  }

  bool refuse_whole(const std::string& number) {
    return refuse(text_.rfind(number, offset()),
                  "whole number " + number + " does not fit into 64 signed bits",
                  "write it as text, or with a decimal point if it may be rounded");
  }

  bool refuse(std::size_t offset, const std::string& why, std::string help = "") {
    const std::string_view before = text_.substr(0, offset);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t column = offset - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
    error_ = {Code::kSyntax, join_parts(line, ":", column, ": ", why), std::move(help)};
    return false;
  }

  std::string_view text_;
  const char* furthest_;
  std::vector<Open> open_;
  Json root_;
  Error error_{Code::kSyntax, "not JSON"};
};

// What the value holds, if it is of that kind.
template <class T, class Variant>
auto& require(Variant& value, Json::Kind kind, const char* wanted) {
  static constexpr std::string_view kNames[] = {"null", "bool",  "int",   "real",
                                                "text", "array", "object"};
  auto* held = std::get_if<T>(&value);
  LS_CHECK(held != nullptr, "JSON value is ", kNames[static_cast<int>(kind)], ", not ", wanted);
  return *held;
}

}  // namespace

Json::Json() = default;
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;
Json::Json(double value) : value_(std::in_place_type<double>, value) {}
Json::Json(std::string text) : value_(std::in_place_type<std::string>, std::move(text)) {}

Json Json::array(Array items) {
  Json json;
  json.value_ = std::move(items);
  return json;
}

Json Json::object() { return object({}); }

Json Json::object(Object members) {
  std::unordered_set<std::string_view> keys;
  for (const Member& member : members)
    LS_CHECK(keys.insert(member.key).second, "key \"", member.key, "\" appears twice");
  Json json;
  json.value_ = std::move(members);
  return json;
}

bool Json::as_bool() const { return require<bool>(value_, kind(), "bool"); }
std::int64_t Json::as_int() const { return require<std::int64_t>(value_, kind(), "int"); }
double Json::as_real() const {
  return is_int() ? static_cast<double>(as_int()) : require<double>(value_, kind(), "a number");
}
const std::string& Json::as_text() const { return require<std::string>(value_, kind(), "text"); }
const Json::Array& Json::items() const { return require<Array>(value_, kind(), "array"); }
Json::Array& Json::items() { return require<Array>(value_, kind(), "array"); }
const Json::Object& Json::members() const { return require<Object>(value_, kind(), "object"); }

const Json* Json::find(std::string_view key) const {
  for (const Member& member : members())
    if (member.key == key) return &member.value;
  return nullptr;
}

Json& Json::set(std::string key, Json value) {
  auto& members = require<Object>(value_, kind(), "object");
  const auto same = std::ranges::find(members, key, &Member::key);
  if (same != members.end())
    same->value = std::move(value);
  else
    members.push_back({std::move(key), std::move(value)});
  return *this;
}

Json& Json::push(Json value) {
  items().push_back(std::move(value));
  return *this;
}

std::string Json::dump(int indent) const {
  Dumper dumper(indent);
  dumper.write(*this);
  return dumper.take();
}

Result<Json> Json::parse(std::string_view text) { return Builder(text).build(); }

bool Json::operator==(const Json& other) const = default;

}  // namespace lockstep
