// How far predictions are off once some runs of a source are known: k rows of it are drawn, learned
// from, and all its others predicted; again and again. What a user gets from the runs they have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/backtest/score.h"
#include "lockstep/observe/posterior.h"

namespace lockstep::backtest {

struct AdaptProtocol {
  std::vector<int> known;  // rows of a source that are given, each number for itself
  int draws = 200;
  std::uint64_t seed = 1;
};

// Over all predictions of all draws.
struct AdaptSummary {
  Summary error;            // of the P50
  double p50 = 0, p95 = 0;  // share of the measured that are not above
};

struct AdaptFigures {
  AdaptSummary all;
  std::vector<std::pair<std::string, AdaptSummary>> sources;
  std::vector<std::pair<std::string, AdaptSummary>> kinds;  // of readings; memory alone
  std::vector<std::pair<std::string, int>> left_out;        // sources with too few rows, and those
};

struct AdaptScore {
  int known = 0;
  AdaptFigures time, memory;
};

// Time of rows that count for a headline, memory of those that are not excluded. Sources with at
// most k + 1 such rows are left out of k's figures, and named.
std::vector<AdaptScore> adapt(const Scores& scores, const AdaptProtocol& protocol);

}  // namespace lockstep::backtest
