#include "lockstep/schedule/balance.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::schedule {

std::vector<std::int32_t> balance_units(std::span<const Seconds> costs, int stages) {
  const std::size_t units = costs.size();
  LS_CHECK(stages >= 1 && static_cast<std::size_t>(stages) <= units, units, " units over ", stages,
           " stages");
  // dearest[u]: the dearest of the last `k` stages when they hold the units from u on, at best;
  // cut[k][u]: where the second of them then begins, as late as can be.
  std::vector<Seconds> dearest(units);
  Seconds rest;
  for (std::size_t u = units; u-- > 0;) dearest[u] = rest += costs[u];
  std::vector<std::vector<std::size_t>> cut = {{}};
  for (int k = 1; k < stages; ++k) {
    std::vector<Seconds> next(units);
    std::vector<std::size_t>& at = cut.emplace_back(units);
    for (std::size_t u = 0; u + static_cast<std::size_t>(k) < units; ++u) {
      Seconds first;
      for (std::size_t end = u + 1; end + static_cast<std::size_t>(k) <= units; ++end) {
        first += costs[end - 1];
        const Seconds worst = std::max(first, dearest[end]);
        if (at[u] == 0 || worst <= next[u]) next[u] = worst, at[u] = end;
      }
    }
    dearest = std::move(next);
  }
  std::vector<std::int32_t> begin = {0};
  for (std::size_t k = cut.size() - 1, u = 0; k > 0; --k)
    begin.push_back(static_cast<std::int32_t>(u = cut[k][u]));
  begin.push_back(static_cast<std::int32_t>(units));
  return begin;
}

}  // namespace lockstep::schedule
