// One forward, one backward, with a flush at the end of the step: PipeDream-flush in Narayanan et
// al., "Memory-efficient pipeline-parallel DNN training", ICML 2021. After a warm-up as deep as the
// pipeline behind it, a pipeline rank alternates and holds at most coords - r microbatches.
#include <vector>

#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {

Result<Schedule> one_f_one_b(const Shape& shape) {
  LS_TRY(check_one_chunk("1f1b", shape));
  std::vector<int> warm_ups;
  for (int r = 0; r < shape.coords; ++r) warm_ups.push_back(shape.coords - 1 - r);
  return alternating(shape, warm_ups);
}

}  // namespace lockstep::pipeline
