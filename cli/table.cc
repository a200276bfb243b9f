#include "cli/table.h"

#include <algorithm>
#include <ostream>

namespace lockstep::cli {

void print_table(std::ostream& out, const Rows& rows, const std::string& sides) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - row[i].size(), ' ');
      if (i > 0) line += "  ";
      line += sides[i] == 'r' ? pad + row[i] : row[i] + pad;
    }
    out << line.substr(0, line.find_last_not_of(' ') + 1) << "\n";
  }
}

std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i)
    text += (i == 0 ? "" : i + 1 == items.size() ? " and " : ", ") + items[i];
  return text;
}

}  // namespace lockstep::cli
