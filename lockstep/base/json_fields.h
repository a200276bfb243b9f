// Strict reading of JSON objects, member by member: the first thing that is wrong is remembered
// with its place, and what could not be read is 0 or empty, so that a reader needs no branch of its
// own for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep {

// What is wrong first, as "`tensors[3].shape` is missing". Absent: nothing.
using JsonTrouble = std::optional<std::string>;

// One object. One thread at a time; the value and `trouble` outlive it.
class JsonFields {
 public:
  // `where` is the object's place, as "tensors[3]"; empty for the outermost.
  JsonFields(const Json& object, std::string where, JsonTrouble& trouble);

  // Every key that is asked for must be there.
  const Json* get(std::string_view key);  // null: it is not
  std::string text(std::string_view key);
  std::int64_t integer(std::string_view key);
  std::int64_t count(std::string_view key);                // a whole number from 0 on
  double real(std::string_view key);                       // finite, from 0 on
  std::vector<std::int64_t> counts(std::string_view key);  // a list of such whole numbers
  const Json::Array& list(std::string_view key);
  std::vector<std::pair<std::string, std::string>> texts(std::string_view key);  // of an object
  JsonFields object(std::string_view key);
  JsonFields item(std::string_view key, std::size_t index);  // REQUIRES: the list has it

  // Refuses keys that nobody has asked for; each may have been asked for once.
  void done();
  // `key` empty: the object itself.
  void refuse(std::string_view key, const std::string& what);
  const Json& json() const { return object_; }  // an object, if need be an empty one

 private:
  // Null too, and refused, where it is another kind of value.
  const Json* get(std::string_view key, bool (Json::*wanted)() const, const char* why);
  std::string place_of(std::string_view key) const;

  const Json& object_;
  std::string where_;
  JsonTrouble& trouble_;
  std::size_t asked_ = 0;
};

// The whole numbers from 0 on of a list; nothing when it is none, or holds anything else.
std::optional<std::vector<std::int64_t>> counts_in(const Json& json);

}  // namespace lockstep
