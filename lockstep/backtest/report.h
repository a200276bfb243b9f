// Scores as one JSON object, as the page docs/accuracy.md, and as CSV.
#pragma once

#include <string>
#include <vector>

#include "lockstep/backtest/adapt.h"
#include "lockstep/backtest/score.h"
#include "lockstep/base/json.h"

namespace lockstep::backtest {

// "lockstep.backtest/2". Errors are fractions: 0.08 is 8 %. `heldout.step_time.median`, `.p90`,
// `.rows`, `heldout.memory.median`, `oom.right`, `oom.total`; the same under `calibration`, and per
// source.
Json to_json(const Scores& scores);

// Its `adapt`: a list with, for each number of known rows, `k`, `draws`, `seed`, `rows`
// (predictions made), `median`, `p90` and `bias` of the P50's error, `p50` and `p95` (shares of the
// measured that are not above), `sources` with the same each, `left_out` (sources with too few
// rows, and how many), and `memory` with all of them and `kinds`. Without predictions `rows` is 0
// and median to p95 are absent.
Json to_json(const std::vector<AdaptScore>& scores, const AdaptProtocol& protocol);

// Markdown with tables; `file` is the name the runs were read from.
std::string accuracy_page(const Scores& scores, const std::string& file);

// Every scored run as a line of CSV: what was measured, what was predicted and from which terms, so
// that a single error can be followed to its cause. Columns: id, source, split, outcome, counted (1
// in the headline), measured_s, predicted_s, error (ln predicted / measured), the terms of the
// predicted step in seconds (cost::kStepTerms), measured_gb, allocated_gb, reserved_gb, shown_gb
// (cost::kReadings), needed_gb (cost::device_bytes), has_gb, fits (0 or 1), and reason, why a row
// was not priced or left out. A cell is empty where there is no value; GB are 1e9 bytes.
std::string rows_csv(const Scores& scores);

}  // namespace lockstep::backtest
