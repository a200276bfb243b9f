// Whether a run can measure its gradient noise scale.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/model/model_config.h"
#include "lockstep/spec/contradictions.h"
#include "lockstep/spec/layout.h"

namespace lockstep::spec {

// Every reason why not. It compares the gradient of a step's first microbatch with that of the batch;
// so there must be others in the batch, and no parameter may get its gradient from two units.
std::vector<Contradiction> against_noise_scale(std::int64_t steps, const model::ModelConfig& model,
                                               const Batch& batch);

}  // namespace lockstep::spec
