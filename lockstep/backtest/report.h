// Scores as one JSON object, as the page docs/accuracy.md, and as a picture.
#pragma once

#include <string>

#include "lockstep/backtest/score.h"
#include "lockstep/base/json.h"

namespace lockstep::backtest {

// "lockstep.backtest/1". Errors are fractions: 0.08 is 8 %. `heldout.step_time.median`, `.p90`, `.rows`,
// `heldout.memory.median`, `oom.right`, `oom.total`; the same under `calibration`, and per source.
Json to_json(const Scores& scores);

// Markdown with tables; `file` is the name the runs were read from.
std::string accuracy_page(const Scores& scores, const std::string& file);

}  // namespace lockstep::backtest
