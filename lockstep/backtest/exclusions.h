// Rows that lie outside the cost model, by rules on what a row says of its run (bench/backtest/excluded.toml).
#pragma once

#include <string>
#include <vector>

#include "lockstep/backtest/run_table.h"
#include "lockstep/config/document.h"

namespace lockstep::backtest {

struct Exclusion {
  std::string column;
  std::vector<std::string> is, begins, contains;  // a row matches when any of them does
  bool time_only = false;                         // its memory is still scored
  std::string reason;

  bool matches(const PublishedRun& run) const;
};

// The [[exclude]] tables of a file. A table without a known column, without values or without a reason is
// kBadRunTable.
Result<std::vector<Exclusion>> read_exclusions(const config::Document& document);

}  // namespace lockstep::backtest
