// Reads the members of a JSON object one by one and remembers the first that is missing or of another
// kind (private to cost). What could not be read is 0 or empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/json.h"
#include "lockstep/base/result.h"

namespace lockstep::cost {

class FileFields {
 public:
  // `name` is the file's; `trouble` outlives this and is set at the first mistake.
  FileFields(const Json& object, std::string name, std::string where,
             std::optional<Error>& trouble);

  std::string text(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;
  double real(std::string_view key) const;  // finite, not negative
  const Json::Array& array(std::string_view key) const;
  FileFields object(std::string_view key) const;
  FileFields item(std::string_view key, std::size_t index) const;  // of an array of objects
  const Json& json() const { return object_; }

  void refuse(std::string_view key, const std::string& what) const;

 private:
  const Json* find(std::string_view key) const;

  const Json& object_;
  const std::string name_, where_;
  std::optional<Error>& trouble_;
};

// The object in `text`, which must be of this schema: kSyntax, with the file's name, unless it is.
Result<Json> parse_file(std::string_view text, const std::string& name, std::string_view schema,
                        const std::string& remedy);

}  // namespace lockstep::cost
