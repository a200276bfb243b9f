#include "lockstep/base/csv.h"

namespace lockstep {

std::vector<std::string> take_csv_record(std::string_view& text, int& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (c == '"') {
      if (quoted && text.substr(i + 1).starts_with('"'))
        cells.back() += text[++i];
      else
        quoted = !quoted;
    } else if (quoted || (c != ',' && c != '\n' && c != '\r')) {
      cells.back() += c;
    } else if (c == ',') {
      cells.emplace_back();
    } else if (c == '\n') {
      ++i;
      break;
    }
  }
  text.remove_prefix(i);
  return cells;
}

std::string csv_quoted(std::string_view text) {
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? "\"\"" : std::string(1, c);
  return cell + "\"";
}

}  // namespace lockstep
