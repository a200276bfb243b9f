// Columns of text, and lists of things.
#pragma once

#include <algorithm>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

namespace lockstep::cli {

using Rows = std::vector<std::vector<std::string>>;

// Columns as wide as their widest cell, two spaces apart; those marked 'r' in `sides` are aligned
// to the right. REQUIRES: at least one row, all of sides.size() cells.
void print_table(std::ostream& out, const Rows& rows, const std::string& sides);

// Columns that rows of such cells take.
int width_of(const Rows& rows);

// A column of a table with a row for each T.
template <class T>
struct Column {
  const char* title;
  char side;  // 'l' or 'r'
  std::function<std::string(const T&)> text;
  int spare = 0;                // the highest goes first where the window is narrow; 0: stays
  std::string usual = {};       // hidden when every row says this; empty: always shown
  const char* percent_of = "";  // where cells are percent: what they are, in words
};

template <class T>
Rows rows_of(const std::vector<Column<T>>& columns, const std::vector<T>& items) {
  Rows rows(1);
  for (const Column<T>& column : columns) rows[0].emplace_back(column.title);
  for (const T& item : items) {
    rows.emplace_back();
    for (const Column<T>& column : columns) rows.back().push_back(column.text(item));
  }
  return rows;
}

// Erases the columns in which every row says what is usual, then those that `width` has no room
// for; returns the titles of the latter.
template <class T>
std::vector<std::string> fit(std::vector<Column<T>>& columns, const std::vector<T>& items,
                             int width) {
  std::erase_if(columns, [&](const Column<T>& column) {
    return !column.usual.empty() && std::ranges::all_of(items, [&](const T& item) {
      return column.text(item) == column.usual;
    });
  });
  std::vector<std::string> left_out;
  while (width_of(rows_of(columns, items)) > width) {
    const auto first = std::ranges::max_element(columns, {}, &Column<T>::spare);
    if (first->spare == 0) break;
    left_out.emplace_back(first->title);
    columns.erase(first);
  }
  return left_out;
}

template <class T>
void print_table(std::ostream& out, const std::vector<Column<T>>& columns,
                 const std::vector<T>& items) {
  std::string sides;
  for (const Column<T>& column : columns) sides += column.side;
  print_table(out, rows_of(columns, items), sides);
}

// "1, 2 and 4".
std::string listed(const std::vector<std::string>& items);

}  // namespace lockstep::cli
