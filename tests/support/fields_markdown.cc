#include "tests/support/fields_markdown.h"

#include "lockstep/base/check.h"

namespace lockstep::config {
namespace {

std::string section_of(const Field& field) {
  const std::size_t dot = field.path.rfind('.');
  return dot == std::string::npos ? "" : field.path.substr(0, dot);
}

// A pipe would end a cell of the table.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string fields_markdown(const FieldTable& table) {
  std::string out;
  std::string section;
  for (const Field& field : table.fields()) {
    if (section_of(field) != section || out.empty()) {
      section = section_of(field);
      const std::string title = section.empty() ? "top level" : "[" + section + "]";
      out += join_parts(out.empty() ? "" : "\n", "## ", title, "\n\n");
      out += "| key | takes | default | meaning |\n| --- | --- | --- | --- |\n";
    }
    std::string initial = field.required ? "required" : "";
    if (!field.required_unless.empty()) initial = "required unless " + field.required_unless;
    if (!field.initial.empty()) initial = "`" + field.initial + "`";
    const std::string key = section.empty() ? field.path : field.path.substr(section.size() + 1);
    out += join_parts("| `", key, "` | ", cell(accepts(field)), " | ", initial, " | ",
                      cell(field.doc), " |\n");
  }
  return out;
}

}  // namespace lockstep::config
