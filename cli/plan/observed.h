// What runs that the user timed say of layouts that were not (`plan --observed`). docs/observed.md
// has the method.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/plan/observed_runs.h"
#include "lockstep/base/json.h"
#include "lockstep/config/diagnostic.h"
#include "lockstep/observe/posterior.h"
#include "lockstep/planner/finalists.h"

namespace lockstep::cli {

class Observed {
 public:
  // Nothing, with every mistake in `report`. What `plan --learned` wrote is learned anew, and
  // refused where that gives other figures.
  static std::optional<Observed> read(const std::string& file, const PlanRequest& request,
                                      config::Report& report);

  // What the runs say of a layout; its times and rates become those of the P50.
  observe::Belief correct(planner::Finalist& finalist) const;
  // Of what it needs over what is predicted, which correct() does not change; nothing where no run
  // says what it took.
  std::optional<observe::Belief> need(const planner::Priced& priced) const;
  bool says_memory() const { return memory_ != nullptr; }

  // What was learned and from which rows, for people: at most eight notes.
  std::vector<std::string> lines() const;
  // As `plan --learned` writes it: read() gives the same posterior, to the last bit.
  Json json() const;

 private:
  Observed() = default;
  // "data 1.35 of predicted +- 30 %, was 1 +- 80 %; from lines 2 and 4"
  std::string told(std::size_t part) const;
  double learned_seconds(std::size_t run) const;  // that all runs say of it
  // Rows of which a part was learned, those that weigh most in it first: "lines 2 and 4".
  std::string rows_of(std::size_t part) const;

  ObservedRuns read_;
  std::shared_ptr<const observe::Posterior> learned_;
  std::shared_ptr<const observe::Posterior> memory_;  // null: no run says it
};

}  // namespace lockstep::cli
