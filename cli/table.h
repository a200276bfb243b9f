// Columns of text, and lists of things.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "lockstep/base/units.h"

namespace lockstep::cli {

using Rows = std::vector<std::vector<std::string>>;

// Columns as wide as their widest cell, two spaces apart; those marked 'r' in `sides` are aligned to
// the right. REQUIRES: at least one row, all of sides.size() cells.
void print_table(std::ostream& out, const Rows& rows, const std::string& sides);

// "1, 2 and 4".
std::string listed(const std::vector<std::string>& items);

}  // namespace lockstep::cli
