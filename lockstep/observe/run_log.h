// What the log of a training run says of its steps: metrics.jsonl of this program, and the lines
// that Megatron-LM (core 0.20, megatron/training/training.py) and torchtitan (0.2.2,
// components/metrics.py) print. Pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "lockstep/base/result.h"
#include "lockstep/observe/run_features.h"

namespace lockstep::observe {

struct RunLog {
  // Medians over the lines of the last session and its last batch size, but the first kWarmUp.
  double step_s = 0;        // 0: tokens_per_s says it
  double tokens_per_s = 0;  // of a device
  double flop_per_s = 0;    // of a device, as the framework counts them; 0: not said
  // The most that any line says; 0: none does. Of the ranks that print, so of all only where each
  // holds the same.
  double memory_bytes = 0;
  cost::Reading reading = cost::Reading::kReserved;
  std::map<std::string, std::string> cells = {};  // what else it says, by column of a row
};

// Lines that are left out because a run warms up, and those that have to remain.
inline constexpr std::size_t kWarmUp = 2, kLeastLines = 3;

// `name` is that of the log, for errors.
Result<RunLog> read_run_log(std::string_view text, const std::string& name);

}  // namespace lockstep::observe
