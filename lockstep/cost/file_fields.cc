#include "lockstep/cost/file_fields.h"

#include <cmath>
#include <utility>

namespace lockstep::cost {
namespace {

const Json& no_object() {
  static const Json none = Json::object();
  return none;
}
const Json& no_array() {
  static const Json none = Json::array();
  return none;
}

}  // namespace

FileFields::FileFields(const Json& object, std::string name, std::string where,
                       std::optional<Error>& trouble)
    : object_(object.is_object() ? object : no_object()),
      name_(std::move(name)),
      where_(std::move(where)),
      trouble_(trouble) {
  if (!object.is_object()) refuse("", "is no object");
}

void FileFields::refuse(std::string_view key, const std::string& what) const {
  if (trouble_) return;
  const std::string place = where_.empty() ? std::string(key)
                            : key.empty()  ? where_
                                           : join_parts(where_, ".", key);
  trouble_ = Error{Code::kSyntax, join_parts("`", name_, "`: `", place, "` ", what), ""};
}

const Json* FileFields::find(std::string_view key) const {
  const Json* found = object_.find(key);
  if (found == nullptr) refuse(key, "is missing");
  return found;
}

std::string FileFields::text(std::string_view key) const {
  const Json* found = find(key);
  if (found != nullptr && !found->is_text()) refuse(key, "is no text");
  return found != nullptr && found->is_text() ? found->as_text() : "";
}

std::int64_t FileFields::integer(std::string_view key) const {
  const Json* found = find(key);
  if (found != nullptr && !found->is_int()) refuse(key, "is no whole number");
  return found != nullptr && found->is_int() ? found->as_int() : 0;
}

double FileFields::real(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return 0;
  const double value = found->is_number() ? found->as_real() : -1;
  if (!(value >= 0 && std::isfinite(value))) {
    refuse(key, "is no number of 0 or more");
    return 0;
  }
  return value;
}

const Json::Array& FileFields::array(std::string_view key) const {
  const Json* found = find(key);
  if (found != nullptr && found->is_array()) return found->items();
  if (found != nullptr) refuse(key, "is no array");
  return no_array().items();
}

FileFields FileFields::object(std::string_view key) const {
  const Json* found = find(key);
  const std::string where = where_.empty() ? std::string(key) : join_parts(where_, ".", key);
  return {found == nullptr ? no_object() : *found, name_, where, trouble_};
}

FileFields FileFields::item(std::string_view key, std::size_t index) const {
  const std::string where = join_parts(where_.empty() ? "" : where_ + ".", key, "[", index, "]");
  return {array(key)[index], name_, where, trouble_};
}

Result<Json> parse_file(std::string_view text, const std::string& name, std::string_view schema,
                        const std::string& remedy) {
  Result<Json> json = Json::parse(text);
  if (!json.ok())
    return Error{Code::kSyntax, join_parts("`", name, "`:", json.error().message), remedy};
  const Json* found = json->is_object() ? json->find("schema") : nullptr;
  if (found == nullptr || !found->is_text())
    return Error{Code::kSyntax,
                 join_parts("`", name, "` has no schema, where ", schema, " is expected"), remedy};
  if (found->as_text() != schema)
    return Error{Code::kSyntax,
                 join_parts("`", name, "` is of schema ", found->as_text(),
                            ", where this program reads ", schema),
                 remedy};
  return json;
}

}  // namespace lockstep::cost
