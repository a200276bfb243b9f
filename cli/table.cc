#include "cli/table.h"

#include <numeric>
#include <ostream>

namespace lockstep::cli {

namespace {

std::vector<std::size_t> widths_of(const Rows& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  return widths;
}

}  // namespace

void print_table(std::ostream& out, const Rows& rows, const std::string& sides) {
  const std::vector<std::size_t> widths = widths_of(rows);
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

int width_of(const Rows& rows) {
  const std::vector<std::size_t> widths = widths_of(rows);
  return static_cast<int>(std::accumulate(widths.begin(), widths.end(), 2 * (widths.size() - 1)));
}

std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i)
    text += (i == 0 ? "" : i + 1 == items.size() ? " and " : ", ") + items[i];
  return text;
}

}  // namespace lockstep::cli
