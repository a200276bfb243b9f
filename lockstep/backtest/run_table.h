// Published training runs as rows of a CSV file: one column per setting or figure, as
// docs/accuracy.md lists them. Columns are strict, values are not: a missing or unknown column is
// refused, a value that cannot be read makes that one row unpriced, with the reason.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"

namespace lockstep::backtest {

// One row, every cell as text.
class PublishedRun {
 public:
  PublishedRun(const std::vector<std::string>* columns, std::vector<std::string> cells)
      : columns_(columns), cells_(std::move(cells)) {}

  // REQUIRES: a column of the format.
  const std::string& text(std::string_view column) const;
  // Nothing where the cell is empty or no finite number.
  std::optional<double> number(std::string_view column) const;
  bool is_heldout() const { return text("split") == "heldout"; }
  // Seconds of a step: printed, else derived, else from tokens per second; nothing when there is
  // none.
  std::optional<double> measured_seconds() const;
  // Bytes, and what was read ("device_gb", ...).
  std::optional<double> measured_bytes() const;

 private:
  const std::vector<std::string>* columns_;  // of the table
  std::vector<std::string> cells_;
};

// Owns the names of its columns; rows point to them, so a table is not copied.
struct RunTable {
  std::vector<std::string> columns;
  std::vector<PublishedRun> rows;

  RunTable() = default;
  RunTable(RunTable&&) = delete;
};

const std::vector<std::string>& required_columns();

// RFC 4180: quotes protect commas, line ends and doubled quotes. kBadRunTable names the line, and
// every column that is missing or unknown at once.
Result<void> read_runs(std::string_view text, RunTable& table);

}  // namespace lockstep::backtest
