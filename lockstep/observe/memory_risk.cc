#include "lockstep/observe/memory_risk.h"

#include <cmath>

namespace lockstep::observe {

Belief published_need() { return {0.003, 0.102}; }

double out_of_memory(const Belief& need, double predicted_bytes, double has_bytes) {
  return need.above(std::log(has_bytes / predicted_bytes));
}

double headroom_at(const Belief& need, double risk) {
  constexpr double kFarthest = 40;  // deviations
  double low = need.mean - kFarthest * need.deviation;
  double high = need.mean + kFarthest * need.deviation;
  for (int i = 0; i < 64; ++i) {
    const double middle = (low + high) / 2;
    (need.above(middle) > risk ? low : high) = middle;
  }
  return 1 - std::exp(-high);
}

}  // namespace lockstep::observe
