#include "lockstep/hf/config_keys.h"

#include <utility>

namespace lockstep::hf {

ConfigKeys::ConfigKeys(const Json& object, std::string where, config::Report& report)
    : object_(object), where_(std::move(where)), report_(report) {}

const Json* ConfigKeys::find(const std::string& key) {
  read_.insert(key);
  const Json* const value = object_.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool ConfigKeys::is_null(const std::string& key) const {
  const Json* const value = object_.find(key);
  return value != nullptr && value->is_null();
}

std::int64_t ConfigKeys::size(const std::string& key) {
  if (find(key) == nullptr) return missing(key), 0;
  return size(key, 0);
}

double ConfigKeys::real(const std::string& key) {
  if (find(key) == nullptr) return missing(key), 0.0;
  return real(key, 0.0);
}

std::int64_t ConfigKeys::size(const std::string& key, std::int64_t otherwise) {
  const Json* const value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_int()) return wrong_type(key, "a whole number"), otherwise;
  return value->as_int();
}

double ConfigKeys::real(const std::string& key, double otherwise) {
  const Json* const value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) return wrong_type(key, "a number"), otherwise;
  return value->as_real();
}

bool ConfigKeys::flag(const std::string& key, bool otherwise) {
  const Json* const value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_bool()) return wrong_type(key, "true or false"), otherwise;
  return value->as_bool();
}

std::string ConfigKeys::text(const std::string& key, const std::string& otherwise) {
  const Json* const value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_text()) return wrong_type(key, "text"), otherwise;
  return value->as_text();
}

void ConfigKeys::refuse(const std::string& key, const std::string& why, const std::string& help) {
  const Json* const value = find(key);
  const std::string shown = value == nullptr ? "" : " is " + value->dump();
  report_.add(Error{Code::kBadHfConfig, where_ + key + shown + ", " + why, help});
}

void ConfigKeys::only(const std::string& key, bool wanted, const std::string& why) {
  if (flag(key, wanted) != wanted) refuse(key, why);
}

std::vector<std::string> ConfigKeys::unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.members())
    if (!read_.contains(key)) keys.push_back(key);
  return keys;
}

void ConfigKeys::wrong_type(const std::string& key, const char* wanted) {
  refuse(key, std::string("but it must be ") + wanted);
}

void ConfigKeys::missing(const std::string& key) {
  report_.add(Error{Code::kBadHfConfig, where_ + key + " is missing",
                    "a directory that save_pretrained() of transformers wrote has it"});
}

}  // namespace lockstep::hf
