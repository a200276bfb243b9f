#include "lockstep/planner/placement_rules.h"

namespace lockstep::planner {

Alternative sharding_rule(const Question& question) {
  Question asked = question;
  asked.cp = asked.pp = 1;
  Alternative answer{.change = "zero 3"};
  const auto node = static_cast<double>(question.cluster->tiers.front().size);
  for (double tp = 1; tp <= node && !answer.found; tp *= 2) {
    asked.tp = tp;
    answer = best_of(asked, "zero 3");
  }
  if (answer.found) answer.found->priced.request.shape = &question.shape;
  return answer;
}

}  // namespace lockstep::planner
