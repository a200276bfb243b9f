#include "lockstep/spec/step_sizes.h"

namespace lockstep::spec {

cost::StepSizes step_sizes(const Spec& spec) {
  const mesh::Degrees& degrees = spec.layout.degrees;
  const Recompute& recompute = spec.layout.recompute;
  cost::StepSizes sizes;
  sizes.unit.batch = spec.batch.microbatch;
  sizes.unit.seq = spec.batch.seq;
  sizes.unit.dtype = spec.train.dtype;
  sizes.unit.drop = {recompute.attn_normed, recompute.mlp_normed, recompute.product};
  sizes.unit.head_chunk = spec.train.head_chunk;
  sizes.unit.threads = spec.train.threads;
  sizes.unit.tp = degrees.tp;
  sizes.unit.sequence_parallel = spec.layout.sp && degrees.tp > 1;
  sizes.shards = degrees.dp_shard.value_or(degrees.dp);
  return sizes;
}

}  // namespace lockstep::spec
