// 1F1B with twice the warm-up, so that a hop in each direction hides behind compute: Zhuang et al.,
// "On optimizing the communication of model parallelism", MLSys 2023.
#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {

Result<Schedule> eager_1f1b(const Shape& shape) {
  if (Result<void> fits = check_one_chunk("eager-1f1b", shape); !fits.ok()) return fits.error();
  return interleaved(shape);
}

}  // namespace lockstep::pipeline
