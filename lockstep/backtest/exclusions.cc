#include "lockstep/backtest/exclusions.h"

#include <algorithm>
#include <utility>

namespace lockstep::backtest {
namespace {

std::vector<std::string> texts_of(const config::Value& table, std::string_view key) {
  std::vector<std::string> texts;
  const config::Entry* entry = table.find(key);
  if (entry == nullptr) return texts;
  for (const config::Value& item : entry->value.items)
    if (item.kind == config::ValueKind::kString && !item.text.empty()) texts.push_back(item.text);
  return texts;
}

std::string text_of(const config::Value& table, std::string_view key) {
  const config::Entry* entry = table.find(key);
  return entry == nullptr ? std::string() : entry->value.text;
}

}  // namespace

bool Exclusion::matches(const PublishedRun& run) const {
  const std::string& text = run.text(column);
  const auto any = [](const std::vector<std::string>& parts, auto test) {
    return std::ranges::any_of(parts, test);
  };
  return any(is, [&](const std::string& part) { return text == part; }) ||
         any(begins, [&](const std::string& part) { return text.starts_with(part); }) ||
         any(contains,
             [&](const std::string& part) { return text.find(part) != std::string::npos; });
}

Result<std::vector<Exclusion>> read_exclusions(const config::Document& document) {
  std::vector<Exclusion> rules;
  const config::Entry* tables = document.find("exclude");
  if (tables == nullptr) return rules;
  for (const config::Value& table : tables->value.items) {
    Exclusion rule{text_of(table, "column"),
                   texts_of(table, "is"),
                   texts_of(table, "begins"),
                   texts_of(table, "contains"),
                   text_of(table, "figures") == "time",
                   text_of(table, "reason")};
    const bool known =
        std::ranges::find(required_columns(), rule.column) != required_columns().end();
    if (!known || rule.reason.empty() ||
        (rule.is.empty() && rule.begins.empty() && rule.contains.empty()))
      return Error{Code::kBadRunTable,
                   "an [[exclude]] table for column `" + rule.column + "` is not complete",
                   "it needs a column of the runs, a reason, and one of is, begins, contains"};
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace lockstep::backtest
