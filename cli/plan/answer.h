// What `lockstep plan` found, as numbers: rows of layouts, what they amount to over a whole run,
// and what is worth saying about them.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cli/plan/request.h"
#include "lockstep/observe/memory_risk.h"
#include "lockstep/planner/finalists.h"
#include "lockstep/planner/goodput.h"
#include "lockstep/planner/step_quantiles.h"

namespace lockstep::cli {

struct PlanRow {
  planner::Finalist finalist = {};
  planner::Goodput goodput = {};
  std::int64_t devices = 0;
  bool runs = false;                                 // here, today
  bool tied = false;                                 // with the first row: planner::is_tied()
  std::vector<cost::Memory> walked = {};             // with a calibration: of every pipeline rank
  std::optional<observe::Belief> observed = {};      // of --observed, whose P50 the times are
  observe::Belief need = observe::published_need();  // of memory, over what is predicted
  double need_factor = 1;  // of --observed: its P50, which memory was corrected by

  double seconds() const { return finalist.seconds; }
  double tokens_per_s() const;  // while nothing fails
  // The price's, corrected by what the simulation says of its step.
  double mfu_causal() const;
  double mfu_full() const;
  const char* peak_name() const;  // "bf16": what MFU is a share of, also where products are fp8
  double share(double seconds_of_step) const { return seconds_of_step / finalist.seconds; }
  planner::StepQuantiles quantiles() const;
  // Factors within which runs of sources that nobody had looked at were off: half of them, and nine
  // of ten. With --observed, within which the runs given leave it.
  struct Doubt {
    double half, most;
  };
  Doubt doubt() const;
  // Memory that a device needs for what is held on it. Walked bytes are all there is.
  double device_bytes(const cost::Memory& held) const {
    return walked.empty() ? cost::device_bytes(held) : held.allocated();
  }
  double device_bytes() const { return device_bytes(finalist.priced.price.memory); }
  // The share of runs like it that run out of memory; nothing where bytes were walked.
  std::optional<double> out_of_memory() const;
  std::vector<cost::Memory> stages() const;  // of every pipeline rank at its worst moment
  // What a device must have where its experts meet `times` their share of rows. REQUIRES: bytes
  // that were not walked.
  double bytes_if_met(double times) const;
};

// A token budget at a price.
struct RunCost {
  double days = 0, device_hours = 0;
  std::optional<double> money = {};
};

struct PlanAnswer {
  std::vector<PlanRow> rows = {};   // best first; --layout: that one
  std::optional<PlanRow> own = {};  // the layout of a run file
  std::int64_t layouts = 0, priced = 0, simulated = 0;
  double walk_s = 0, all_s = 0;
  double least_bytes =
      0;  // that the smallest layout needs, when there are no rows; 0: nothing divides
  std::vector<std::string> warnings = {};      // sentences without full stop
  std::optional<Error> refused = {};           // why --layout cannot be timed
  std::deque<cluster::Cluster> clusters = {};  // of smaller numbers of devices; rows refer to them
  std::deque<planner::Question> questions = {};
};

// A layout, and what failures leave of its time.
PlanRow row_of(const Args& args, const planner::Finalist& finalist);

// Fills in an answer, which stays where it is.
void answer_plan(const Args& args, const PlanRequest& request, PlanAnswer& answer);

// Of --tokens, at --price. REQUIRES: --tokens.
RunCost run_cost(const Args& args, const PlanRow& row);

// Why nothing was found, for people.
Error nothing_found(const PlanRequest& request, const PlanAnswer& answer);

}  // namespace lockstep::cli
