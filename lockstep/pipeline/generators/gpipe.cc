// Huang et al., "GPipe: Efficient training of giant neural networks using pipeline parallelism",
// NeurIPS 2019: all forward passes, then all backward passes. The paper runs the backward passes in
// reverse; here they ascend like in every schedule, so that gradients are added in one order.
#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {

Result<Schedule> gpipe(const Shape& shape) {
  if (Result<void> fits = check_one_chunk("gpipe", shape); !fits.ok()) return fits.error();
  return looped_bfs(shape);
}

}  // namespace lockstep::pipeline
