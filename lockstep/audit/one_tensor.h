// Faults of a single tensor that its own numbers show: shards that are zero or changed places, a
// transposed weight, heads in another order, a sum that was not made.
#pragma once

#include <string>
#include <vector>

#include "lockstep/audit/explain.h"

namespace lockstep::audit {

struct TensorFault {
  std::string what;  // the same words for every tensor that has it
  int fitted = 0;
  double distance = 0;  // left, in the norm over the tensor
};

// Within `bound`, the fewest fitted numbers first. `wanted` is what the tensor should be.
std::vector<TensorFault> faults_of(const Evidence& evidence, std::size_t tensor,
                                   const std::vector<double>& wanted, double bound);

}  // namespace lockstep::audit
