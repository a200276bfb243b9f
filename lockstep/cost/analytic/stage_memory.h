// Memory of one rank of a pipeline at its own worst moment, by class: what a picture of a pipeline shows stage by
// stage. The largest over stages is price_memory(), whose formulas and sources these are (peak_memory.h).
#pragma once

#include <optional>

#include "lockstep/cost/analytic/price.h"

namespace lockstep::cost {

// Bytes on every device of pipeline rank `stage`, 0 to request.pp - 1.
Memory stage_memory(const PriceRequest& request, double stage);

// How many blocks of that rank must keep their input alone for it to fit when the rest keep what `request.others` says:
// the fewest, 0 where none must; nothing where all are not enough. `request.keep` and `.remade` are not read.
std::optional<double> least_recomputed(const PriceRequest& request, double stage);
// The same number on every rank: the most that one needs.
std::optional<double> least_recomputed(const PriceRequest& request);

}  // namespace lockstep::cost
