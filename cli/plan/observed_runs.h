// Runs that the user timed, from a file: rows of CSV, metrics.jsonl of a run, or what `plan
// --learned` wrote. docs/observed.md has the columns.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/config/diagnostic.h"
#include "lockstep/observe/posterior.h"

namespace lockstep::cli {

struct PlanRequest;

inline constexpr const char* kLearnedSchema = "lockstep.observed/1";

struct ObservedRun {
  // line (of the file, or 1), layout, model, cluster, seq, global_batch, dtype, measured_s,
  // predicted_s, and where memory is known memory_gib, memory_is and predicted_gib. A model or
  // cluster of the request that no name finds is null.
  Json said = {};
  observe::Observation time = {};
  std::optional<observe::Observation> memory = {};  // of the device that holds most

  std::int64_t line() const { return said.find("line")->as_int(); }
  double seconds() const { return said.find("measured_s")->as_real(); }
};

struct ObservedRuns {
  std::string file = {};  // that the lines are of
  std::vector<ObservedRun> runs = {};
  Json learned = {};  // an object where `plan --learned` wrote the file: what it was taught
};

// Every row is a layout, timed as --layout would be; a cell that is empty stands for what its log,
// else the request says. Mistakes go to `report`, each with its line and column.
ObservedRuns read_observed_runs(const std::string& file, const PlanRequest& request,
                                config::Report& report);

}  // namespace lockstep::cli
