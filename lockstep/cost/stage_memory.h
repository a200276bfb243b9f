// Memory of one rank of a pipeline at its own worst moment, by class: what a picture of a pipeline shows stage by
// stage. The largest over stages is price_memory(), whose formulas and sources these are (peak_memory.h).
#pragma once

#include "lockstep/cost/price.h"

namespace lockstep::cost {

// Bytes on every device of pipeline rank `stage`, 0 to request.pp - 1.
Memory stage_memory(const PriceRequest& request, double stage);

}  // namespace lockstep::cost
