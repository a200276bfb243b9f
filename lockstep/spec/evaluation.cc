#include "lockstep/spec/evaluation.h"

#include <string>

#include "lockstep/base/check.h"

namespace lockstep::spec {

std::vector<Contradiction> against_evaluation(std::int64_t samples, std::int64_t dp,
                                              const Batch& batch) {
  const std::int64_t unit = dp * batch.microbatch;
  if (samples % unit == 0) return {};
  const std::int64_t below = samples / unit * unit;
  const std::string nearest =
      below > 0 ? join_parts(below, " or ", below + unit) : std::to_string(unit);
  return {{{Code::kDoesNotDivide,
            join_parts("eval_samples = ", samples, " is not a multiple of dp x microbatch = ", dp,
                       " x ", batch.microbatch, " = ", unit),
            join_parts("the nearest eval_samples: ", nearest)},
           {{{"train.eval_samples"}, join_parts(samples, " sequences")},
            {{"layout.dp", "batch.microbatch", "cluster.name"}, join_parts(unit, " at a time")}}}};
}

}  // namespace lockstep::spec
