// How far prices are from what was published: every row priced, and summaries per source, per
// split, per kind of memory reading, of out-of-memory verdicts and of rankings within sweeps.
//
// Errors of time are e = ln(predicted / measured), so that twice and half are equally wrong;
// summaries are of |e| and print as fractions. Headlines count rows of grade A and B that ran and
// are not excluded.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/backtest/run_request.h"
#include "lockstep/backtest/run_table.h"
#include "lockstep/config/document.h"
#include "lockstep/observe/posterior.h"
#include "lockstep/observe/run_features.h"

namespace lockstep::backtest {

// Rows that lie outside the cost model, by rules on what a row says of its run
// (bench/backtest/excluded.toml).
struct Exclusion {
  std::string column;
  std::vector<std::string> is, begins, contains;  // a row matches when any of them does
  bool time_only = false;                         // its memory is still scored
  std::string reason;

  bool matches(const PublishedRun& run) const;
};

// The [[exclude]] tables of a file. A table without a known column, without values or without a
// reason is kBadRunTable.
Result<std::vector<Exclusion>> read_exclusions(const config::Document& document);

// How a row read its memory.
cost::Reading reading_of(const PublishedRun& run);

struct ScoredRun {
  const PublishedRun* run = nullptr;
  std::string not_priced;  // the reason; empty: priced
  std::string excluded;    // the reason of the first rule that matches; empty: none
  bool excluded_memory = false;
  RunRequest asked;            // if priced
  cost::PriceRequest request;  // of `asked`, which owns what it points to
  cost::Price price;
  std::optional<double> seconds, bytes;            // measured
  std::optional<double> time_error, memory_error;  // ln(predicted / measured)
  std::optional<double> baseline_error;            // of the constant-utilisation baseline
  bool in_headline = false;
};

struct Summary {
  int rows = 0;
  double median = 0, p90 = 0, bias = 0;  // of |e|, |e| and e
};
Summary summarize(const std::vector<double>& errors);

struct SourceScore {
  std::string source;
  bool heldout = false;
  Summary time, baseline, memory;  // headline rows; the baseline of those it can price
};

// Layouts of one model on one machine with one batch: what the planner would have chosen among
// those listed.
struct Sweep {
  std::string name;
  bool heldout = false;
  int rows = 0;
  double regret = 0;       // measured time of the planner's choice over the best, less 1
  double correlation = 0;  // of ranks (Spearman)
};

// What was needed by prediction, as a share of what the device had, and what became of it.
struct Verdict {
  double full = 0;
  bool ran_out = false;
};
// Of ln(needed / predicted): the normal distribution under which the verdicts are likeliest.
// REQUIRES: some.
observe::Belief likeliest_need(const std::vector<Verdict>& verdicts);

struct OomScore {
  int right = 0, total = 0;
  int hits = 0, misses = 0, false_alarms = 0, passes = 0;
  std::vector<Verdict> verdicts = {};
};

// How errors go with a term: rows in which its share of the predicted step is in the top quarter.
struct TermScore {
  std::string term;
  Summary time;
};

struct Scores {
  std::vector<ScoredRun> runs;
  Summary time[2], memory[2], baseline[2], excluded_time;  // [0] calibration, [1] held out
  std::vector<SourceScore> sources;
  std::vector<std::pair<std::string, Summary>> memory_kinds[2];
  std::vector<TermScore> terms;
  OomScore oom;
  std::vector<Sweep> sweeps;
  bool baseline_from_file = false;  // else the constants in score.cc
};

Scores score(const RunTable& table, const std::vector<Exclusion>& exclusions);

}  // namespace lockstep::backtest
