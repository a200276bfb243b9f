#include "lockstep/search/placement_rules.h"

#include <cmath>

namespace lockstep::search {

Alternative sharding_rule(const Question& question) {
  Question asked = question;
  asked.cp = asked.pp = 1;
  Alternative answer{.change = "zero 3"};
  const auto node = static_cast<double>(question.cluster->tiers.front().size);
  for (double tp = 1; tp <= node && !answer.found; tp *= 2) {
    asked.tp = tp;
    const Walk found = walk(Lattice(asked), 4);
    if (!found.best.empty())
      answer.found = simulate(found.best).front();
    else if (std::isfinite(found.least_bytes))
      answer.least_bytes = found.least_bytes;
  }
  if (answer.found) answer.found->priced.request.shape = &question.shape;
  return answer;
}

}  // namespace lockstep::search
