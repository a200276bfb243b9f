#pragma once

#include "lockstep/cost/analytic/model_shape.h"

namespace lockstep::cost {

// Parameters of a whole model, a tied projection counted once.
inline double total_params(const ModelShape& s) {
  PartParams sum = plain_layer_params(s) * s.plain_layers();
  if (s.has_experts()) sum += expert_layer_params(s) * s.expert_layers();
  sum += embedding_params(s);
  sum += head_params(s);
  return sum.total() - (s.tied ? s.vocab * s.hidden : 0);
}

}  // namespace lockstep::cost
