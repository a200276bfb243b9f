#include "lockstep/checkpoint/manifest_text.h"

#include <algorithm>

namespace lockstep::checkpoint {
namespace {

const Json::Array& no_items() {
  static const Json::Array none;
  return none;
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

std::optional<std::uint64_t> parse_hex(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (text.size() != 16) return std::nullopt;
  std::uint64_t number = 0;
  for (const char digit : text) {
    const auto value = kDigits.find(digit);
    if (value == std::string_view::npos) return std::nullopt;
    number = number << 4 | value;
  }
  return number;
}

Fields::Fields(const Json& json, std::string where, Trouble& trouble)
    : json_(json), where_(std::move(where)), trouble_(trouble) {
  if (!json.is_object()) trouble_.add(where_, "is not an object");
}

void Fields::fail(std::string_view key, const std::string& what) {
  trouble_.add(where_, "has a `" + std::string(key) + "` that " + what);
}

const Json* Fields::get(std::string_view key) {
  if (!json_.is_object()) return nullptr;
  ++asked_;
  const Json* const found = json_.find(key);
  if (found == nullptr) trouble_.add(where_, "has no `" + std::string(key) + "`");
  return found;
}

std::int64_t Fields::count(std::string_view key) {
  const Json* const found = get(key);
  if (found == nullptr) return 0;
  if (found->is_int() && found->as_int() >= 0) return found->as_int();
  fail(key, "is no whole number from 0 on");
  return 0;
}

std::string Fields::text(std::string_view key) {
  const Json* const found = get(key);
  if (found == nullptr) return {};
  if (found->is_text()) return found->as_text();
  fail(key, "is no text");
  return {};
}

std::vector<std::int64_t> Fields::counts(std::string_view key) {
  const Json* const found = get(key);
  if (found == nullptr) return {};
  if (auto counts = counts_in(*found)) return *std::move(counts);
  fail(key, "is no list of whole numbers from 0 on");
  return {};
}

Hash128 Fields::hash(std::string_view key) {
  const std::string digits = text(key);
  const auto high = parse_hex(std::string_view(digits).substr(0, 16));
  const auto low =
      digits.size() == 32 ? parse_hex(std::string_view(digits).substr(16)) : std::nullopt;
  if (high && low) return {*high, *low};
  fail(key, "is no digest of 32 hexadecimal digits");
  return {};
}

const Json::Array& Fields::list(std::string_view key) {
  const Json* const found = get(key);
  if (found == nullptr) return no_items();
  if (found->is_array()) return found->items();
  fail(key, "is no list");
  return no_items();
}

std::vector<std::pair<std::string, std::string>> Fields::facts(std::string_view key) {
  const Json* const found = get(key);
  if (found == nullptr) return {};
  std::vector<std::pair<std::string, std::string>> facts;
  if (!found->is_object() || !std::ranges::all_of(found->members(), [](const Json::Member& member) {
        return member.value.is_text();
      })) {
    fail(key, "is no object of texts");
    return {};
  }
  for (const auto& [name, value] : found->members()) facts.emplace_back(name, value.as_text());
  return facts;
}

void Fields::done() {
  // Keys are unique, so when all that were asked for were found, a larger number means others.
  if (trouble_.any() || !json_.is_object() || json_.members().size() == asked_) return;
  trouble_.add(where_, "has keys that this version does not know");
}

}  // namespace lockstep::checkpoint
