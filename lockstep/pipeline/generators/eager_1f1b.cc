// 1F1B with twice the warm-up, so that a hop in each direction hides behind compute: Zhuang et al.,
// "On optimizing the communication of model parallelism", MLSys 2023.
#include <vector>

#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {

Result<Schedule> eager_1f1b(const Shape& shape) {
  if (Result<void> fits = check_one_chunk("eager-1f1b", shape); !fits.ok()) return fits.error();
  std::vector<int> warm_ups;
  for (int r = 0; r < shape.coords; ++r) warm_ups.push_back(2 * (shape.coords - 1 - r));
  return alternating(shape, warm_ups);
}

}  // namespace lockstep::pipeline
