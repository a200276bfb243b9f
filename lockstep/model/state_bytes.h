// Bytes that weights, gradients and optimizer state take per parameter, whole or sharded over a
// data group: ZeRO, Rajbhandari et al., SC 2020 (arXiv 1910.02054), section 5 and figure 1.
//
// These are the states alone. Buckets of a stage-2 reduction, units gathered by stage 3 and
// activations come on top; who runs the step knows them.
#pragma once

#include <cstdint>

#include "lockstep/base/dtype.h"

namespace lockstep::model {

// Bytes per parameter before sharding.
struct StateWidths {
  double weights = 2.0;
  double grads = 4.0;
  double optimizer = 12.0;  // f32 master copy and Adam's two moments
  bool operator==(const StateWidths&) const = default;
};

// Working weights in `compute`, gradients in `grads`, Adam moments in f32 (f64 when computing in
// f64) and, where the working type is narrower than the moments, a master copy of their type.
StateWidths adam_widths(DType compute, DType grads);

// Bytes per parameter on one rank, split.
struct StateShare {
  double weights = 0.0;
  double grads = 0.0;
  double optimizer = 0.0;
  double total() const { return weights + grads + optimizer; }
};

// `zero` is the ZeRO stage: 0 shards nothing, 1 the optimizer, 2 also gradients, 3 also weights.
// `group` ranks share the shards. With several microbatches, stage 2 holds a gradient shard only
// when every microbatch is reduced. REQUIRES: 0 <= zero <= 3, group >= 1.
StateShare state_share(const StateWidths& widths, int zero, std::int64_t group);

}  // namespace lockstep::model
