// tests/backtest/runs.csv: rows of published runs that tests price, with their sources.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "lockstep/backtest/run_table.h"
#include "tests/support/golden.h"

namespace lockstep::backtest {

inline void read_published(RunTable& table) {
  std::ifstream file(support::source_dir() + "/tests/backtest/runs.csv");
  std::stringstream text;
  text << file.rdbuf();
  const auto ok = read_runs(text.str(), table);
  ASSERT_TRUE(ok.ok()) << ok.error().message;
}

}  // namespace lockstep::backtest
