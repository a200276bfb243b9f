#include "lockstep/base/json_fields.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

const Json& no_object() {
  static const Json kNone = Json::object();
  return kNone;
}

}  // namespace

std::optional<std::vector<std::int64_t>> counts_in(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<std::int64_t> counts;
  for (const Json& item : json.items()) {
    if (!item.is_int() || item.as_int() < 0) return std::nullopt;
    counts.push_back(item.as_int());
  }
  return counts;
}

JsonFields::JsonFields(const Json& object, std::string where, JsonTrouble& trouble)
    : object_(object.is_object() ? object : no_object()),
      where_(std::move(where)),
      trouble_(trouble) {
  if (!object.is_object()) refuse("", "is no object");
}

std::string JsonFields::place_of(std::string_view key) const {
  if (where_.empty()) return std::string(key);
  return key.empty() ? where_ : join_parts(where_, ".", key);
}

void JsonFields::refuse(std::string_view key, const std::string& what) {
  if (trouble_) return;
  const std::string place = place_of(key);
  trouble_ = place.empty() ? "it " + what : join_parts("`", place, "` ", what);
}

const Json* JsonFields::get(std::string_view key) {
  ++asked_;
  const Json* const found = object_.find(key);
  if (found == nullptr) refuse(key, "is missing");
  return found;
}

const Json* JsonFields::get(std::string_view key, bool (Json::*wanted)() const, const char* why) {
  const Json* const found = get(key);
  if (found == nullptr || (found->*wanted)()) return found;
  refuse(key, why);
  return nullptr;
}

std::string JsonFields::text(std::string_view key) {
  const Json* const found = get(key, &Json::is_text, "is no text");
  return found == nullptr ? "" : found->as_text();
}

std::int64_t JsonFields::integer(std::string_view key) {
  const Json* const found = get(key, &Json::is_int, "is no whole number");
  return found == nullptr ? 0 : found->as_int();
}

std::int64_t JsonFields::count(std::string_view key) {
  const std::int64_t value = integer(key);
  if (value >= 0) return value;
  refuse(key, "is no whole number from 0 on");
  return 0;
}

double JsonFields::real(std::string_view key) {
  const Json* const found = get(key);
  if (found == nullptr) return 0;
  const double value = found->is_number() ? found->as_real() : -1;
  if (value >= 0 && std::isfinite(value)) return value;
  refuse(key, "is no number of 0 or more");
  return 0;
}

std::vector<std::int64_t> JsonFields::counts(std::string_view key) {
  const Json* const found = get(key);
  if (found == nullptr) return {};
  if (auto counts = counts_in(*found)) return *std::move(counts);
  refuse(key, "is no list of whole numbers from 0 on");
  return {};
}

const Json::Array& JsonFields::list(std::string_view key) {
  static const Json::Array kNone;
  const Json* const found = get(key, &Json::is_array, "is no list");
  return found == nullptr ? kNone : found->items();
}

std::vector<std::pair<std::string, std::string>> JsonFields::texts(std::string_view key) {
  const Json* const found = get(key);
  if (found == nullptr) return {};
  if (!found->is_object() || !std::ranges::all_of(found->members(), [](const Json::Member& member) {
        return member.value.is_text();
      })) {
    refuse(key, "is no object of texts");
    return {};
  }
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& [name, value] : found->members()) texts.emplace_back(name, value.as_text());
  return texts;
}

JsonFields JsonFields::object(std::string_view key) {
  const Json* const found = get(key);
  return {found == nullptr ? no_object() : *found, place_of(key), trouble_};
}

JsonFields JsonFields::item(std::string_view key, std::size_t index) {
  return {object_.find(key)->items()[index], join_parts(place_of(key), "[", index, "]"), trouble_};
}

void JsonFields::done() {
  // Keys are unique, so when all that were asked for were found, a larger number means others.
  if (trouble_ || object_.members().size() == asked_) return;
  refuse("", "has keys that this version does not know");
}

}  // namespace lockstep
