#include "lockstep/spec/evaluation.h"

#include "lockstep/base/check.h"

namespace lockstep::spec {

std::vector<Contradiction> against_evaluation(std::int64_t samples, std::int64_t dp,
                                              const Batch& batch) {
  const std::int64_t unit = dp * batch.microbatch;
  if (samples % unit == 0) return {};
  return {{{Code::kDoesNotDivide,
            join_parts("eval_samples = ", samples, " is not a multiple of dp x microbatch = ", dp,
                       " x ", batch.microbatch, " = ", unit),
            "the nearest eval_samples: " + nearest_multiples(samples, unit)},
           {{{"train.eval_samples"}, join_parts(samples, " sequences")},
            {{"layout.dp", "batch.microbatch", "cluster.name"}, join_parts(unit, " at a time")}}}};
}

}  // namespace lockstep::spec
