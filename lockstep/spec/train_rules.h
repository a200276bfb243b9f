// Whether a run can evaluate, measure its gradient noise scale, balance experts and share them:
// every reason why not.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/buffer.h"
#include "lockstep/model/model_config.h"
#include "lockstep/spec/contradictions.h"

namespace lockstep::spec {

// Each data-parallel rank takes as many whole microbatches as the others, as in
// training, so that no sample counts twice and none is left out.
std::vector<Contradiction> against_evaluation(std::int64_t samples, std::int64_t dp,
                                              const Batch& batch);

// It compares the gradient of a step's first microbatch with that of the batch;
// so there must be others in the batch, and no parameter may get its gradient from two units.
std::vector<Contradiction> against_noise_scale(std::int64_t steps, const model::ModelConfig& model,
                                               const Batch& batch);

// What does not run yet where ranks that take other tokens share experts: the noise scale.
std::vector<Contradiction> against_expert_parallelism(const mesh::Degrees& degrees,
                                                      std::int64_t noise_scale,
                                                      const model::ModelConfig& model);

// Losses of routers need some.
std::vector<Contradiction> against_router_losses(double aux_loss_coeff, double z_loss_coeff,
                                                 const model::ModelConfig& model);

}  // namespace lockstep::spec
