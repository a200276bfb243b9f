// What the folder of a run says of it.
#pragma once

#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/base/result.h"
#include "lockstep/draw/curves.h"

namespace lockstep::cli {

// Curves over steps that a page shows, in this order.
inline constexpr const char* kRunCurves[] = {"loss", "eval_loss", "grad_norm", "lr",
                                             "tokens_per_second"};

struct RunFolder {
  Json json;  // as `lockstep report --json` shows it, but for its curves
  // Every point of each of kRunCurves.
  std::vector<std::vector<draw::CurvePoint>> curves =
      std::vector<std::vector<draw::CurvePoint>>(std::size(kRunCurves));
  std::vector<double> resumed = {};                                // behind these steps
  std::vector<std::pair<std::string, std::string>> settings = {};  // of config.toml, all keys
  std::string timeline = {};  // of a step, as SVG; empty: not to be drawn, and json says why
};

// A folder of --save or --metrics. Refuses one without metrics.jsonl, a file that says nothing, and
// a line that is none of it; what else is missing or damaged is a note in `json`.
Result<RunFolder> read_run(const std::string& folder);

}  // namespace lockstep::cli
