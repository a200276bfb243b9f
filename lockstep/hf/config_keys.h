// Typed look-up in an object of a config.json: every wrong value is reported, every key asked for is
// remembered, so that the others can be told apart.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/config/diagnostic.h"

namespace lockstep::hf {

// Refers to its arguments. A key whose value is null counts as absent.
class ConfigKeys {
 public:
  // `where` goes before the keys in messages: "config.json: rope_scaling.". REQUIRES: an object.
  ConfigKeys(const Json& object, std::string where, config::Report& report);

  const Json* find(const std::string& key);  // null pointer: absent
  bool is_null(const std::string& key) const;

  // Absent is an error.
  std::int64_t size(const std::string& key);
  double real(const std::string& key);
  // Absent means `otherwise`. After an error, too.
  std::int64_t size(const std::string& key, std::int64_t otherwise);
  double real(const std::string& key, double otherwise);
  bool flag(const std::string& key, bool otherwise);
  std::string text(const std::string& key, const std::string& otherwise);

  // "config.json: `key` is `value`, " and why that cannot be.
  void refuse(const std::string& key, const std::string& why, const std::string& help = "");
  // Refuses the key unless it is absent or says `wanted`.
  void only(const std::string& key, bool wanted, const std::string& why);

  // Keys that were not asked for, in the order of the file.
  std::vector<std::string> unread() const;

 private:
  void wrong_type(const std::string& key, const char* wanted);
  void missing(const std::string& key);

  const Json& object_;
  const std::string where_;
  config::Report& report_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace lockstep::hf
