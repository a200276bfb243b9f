#include "lockstep/pipeline/balance.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::pipeline {

std::optional<std::vector<std::int32_t>> balance_units(int units, int stages,
                                                       const StageCost& cost) {
  LS_CHECK(stages >= 1 && stages <= units, units, " units over ", stages, " stages");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // dearest[u]: the dearest of the stages from `stage` on when they hold the units from u on, at
  // best; cut[stage][u]: where the next stage then begins, as late as can be.
  std::vector<double> dearest(units, kInfinity);
  std::vector<std::vector<std::int32_t>> cut(stages);
  for (int u = stages - 1; u < units; ++u) dearest[u] = cost(stages - 1, u, units);
  for (int stage = stages - 2; stage >= 0; --stage) {
    const int after = stages - 1 - stage;  // stages behind this one, a unit each at least
    std::vector<double> next(units, kInfinity);
    std::vector<std::int32_t>& at = cut[stage];
    at.assign(units, 0);
    for (int u = stage; u + after < units; ++u)
      for (int end = u + 1; end + after <= units; ++end) {
        const double own = cost(stage, u, end);
        if (own == kInfinity || own > next[u]) break;
        const double worst = std::max(own, dearest[end]);
        if (worst <= next[u]) next[u] = worst, at[u] = end;
      }
    dearest = std::move(next);
  }
  if (dearest[0] == kInfinity) return std::nullopt;
  std::vector<std::int32_t> begin = {0};
  for (int stage = 0; stage + 1 < stages; ++stage) begin.push_back(cut[stage][begin.back()]);
  begin.push_back(units);
  return begin;
}

}  // namespace lockstep::pipeline
