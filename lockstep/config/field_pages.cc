#include <algorithm>
#include <cmath>
#include <string>

#include "lockstep/base/check.h"
#include "lockstep/config/fields.h"

namespace lockstep::config {
namespace {

// `text` broken at spaces into lines of at most `width`, each after `indent` spaces.
std::string wrapped(const std::string& text, int indent, int width) {
  const std::string lead(static_cast<std::size_t>(indent), ' ');
  std::string out;
  std::string line;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() &&
        lead.size() + line.size() + 1 + word.size() > static_cast<std::size_t>(width))
      out += lead + line + "\n", line.clear();
    line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  return line.empty() ? out : out + lead + line + "\n";
}

}  // namespace

std::string fields_text(const FieldTable& table, int width) {
  std::string out;
  for (const Field& field : table.fields()) {
    out += field.path;
    if (field.required)
      out += "  (required)";
    else if (!field.required_unless.empty())
      out += "  (required unless " + field.required_unless + ")";
    else
      out += field.initial.empty() ? "  (optional)" : " = " + field.initial;
    out += '\n';
    out += wrapped(field.doc, 4, width);
    out += wrapped(join_parts("Takes ", accepts(field), "."), 4, width);
  }
  return out;
}

Json fields_json(const FieldTable& table) {
  Json list = Json::array();
  for (const Field& field : table.fields()) {
    Json choices = Json::array();
    for (const std::string& choice : field.choices) choices.push(choice);
    const Value* initial = table.initial_of(field.path);
    const auto limit = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
    list.push(Json::object(
        {{"path", field.path},
         {"type", to_text(field.type)},
         {"unit", field.unit.empty() ? Json() : Json(field.unit)},
         {"min", limit(field.min)},
         {"max", limit(field.max)},
         {"choices", std::move(choices)},
         {"required", field.required},
         {"required_unless", field.required_unless.empty() ? Json() : Json(field.required_unless)},
         {"default", initial ? to_json(*initial) : Json()},
         {"env", variable_of(field)},
         {"since", field.since},
         {"doc", field.doc}}));
  }
  return list;
}

}  // namespace lockstep::config
