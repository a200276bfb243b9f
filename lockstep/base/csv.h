// Records of a CSV text (RFC 4180): quotes protect commas, line ends and doubled quotes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Takes one record off `text`, and counts the line ends in it. An empty line is one empty cell.
std::vector<std::string> take_csv_record(std::string_view& text, int& line);

// A cell that is read back as it is: in quotes, its own doubled.
std::string csv_quoted(std::string_view text);

}  // namespace lockstep
