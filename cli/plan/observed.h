// Runs that the user timed, and what they say of layouts that were not (`plan --observed`).
// docs/observed.md has the columns of the file and the method.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/config/diagnostic.h"
#include "lockstep/observe/posterior.h"
#include "lockstep/planner/finalists.h"

namespace lockstep::cli {

struct PlanRequest;

class Observed {
 public:
  // Every row is a layout, timed as --layout would be; a cell that is empty stands for what the
  // request asks. Nothing, with every mistake in `report`, each with its line and column.
  static std::optional<Observed> read(const std::string& file, const PlanRequest& request,
                                      config::Report& report);

  // What the runs say of a layout; its times and rates become those of the P50.
  observe::Belief correct(planner::Finalist& finalist) const;

  std::vector<std::string> lines() const;  // what was learned and from which rows, for people
  Json json() const;

 private:
  struct Run {
    int line = 0;
    std::string layout;
    double measured_s = 0, predicted_s = 0;
  };
  Observed() = default;
  // Rows of which a part was learned, those that weigh most in it first: "lines 2 and 4".
  std::string rows_of(std::size_t part) const;

  std::string file_;
  std::vector<Run> runs_;
  std::vector<observe::RunFeatures> features_;
  std::shared_ptr<const observe::Posterior> learned_;
};

}  // namespace lockstep::cli
