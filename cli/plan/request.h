// What `lockstep plan` is asked, from a run file or from the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/plan/layout_words.h"
#include "cli/plan/observed.h"
#include "cli/verb.h"
#include "lockstep/cluster/cluster.h"
#include "lockstep/config/diagnostic.h"
#include "lockstep/config/document.h"
#include "lockstep/model/model_config.h"
#include "lockstep/planner/calibrated.h"
#include "lockstep/planner/explain.h"

namespace lockstep::cli {

// A number of devices that --target-days or --max-cost looked at; no days: nothing fits.
struct DeviceTrial {
  std::int64_t devices = 0;
  std::optional<double> days = {}, money = {};
};

struct PlanRequest {
  model::ModelConfig model = {};
  std::string model_text = {};  // of --model
  cluster::Cluster cluster = {};
  std::string cluster_text = {};  // as it was named: a short name or a file
  cost::ModelShape shape = {};
  planner::Question question = {};            // refers to both: a request is not copied
  std::optional<config::Document> run = {};   // of FILE
  std::optional<OwnLayout> own = {};          // of --layout, or of FILE when that has one
  bool only_own = false;                      // --layout: nothing else is sought
  std::string filled = {};                    // settings that --layout left open, found since
  std::vector<planner::Change> changes = {};  // of --what-if
  std::vector<DeviceTrial> tried = {};        // by choose_devices()
  DType dtype = DType::kBF16;                 // of FILE
  std::vector<std::string> notes = {};        // on what is asked; sentences without full stop
  std::optional<planner::CalibratedSearch> calibrated = {};  // of --calibration, which prices then
  std::optional<Observed> observed = {};                     // of --observed, which corrects times
  bool keeps_learned = false;                                // --learned
  std::string calibrated_on = {};                            // "2 threads, 2026-01-31: cal.json"

  PlanRequest() = default;
  PlanRequest(const PlanRequest&) = delete;
  PlanRequest& operator=(const PlanRequest&) = delete;
};

// Adds what contradicts the model, the batch or the cluster of the question, and what cannot be
// priced; sets the microbatch from the layout's number of them.
void check_own(OwnLayout& own, const model::ModelConfig& model, const planner::Question& question,
               config::Report& report);

// False, with every mistake in `report`.
bool read_plan_request(const Args& args, PlanRequest& request, config::Report& report);

}  // namespace lockstep::cli
