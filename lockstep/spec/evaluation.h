// Whether the evaluations of a run can be cut over its ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/spec/contradictions.h"
#include "lockstep/spec/layout.h"

namespace lockstep::spec {

// Every reason why not. Each data-parallel rank takes as many whole microbatches as the others, as in
// training, so that no sample counts twice and none is left out.
std::vector<Contradiction> against_evaluation(std::int64_t samples, std::int64_t dp,
                                              const Batch& batch);

}  // namespace lockstep::spec
