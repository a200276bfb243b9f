#include "lockstep/parts/habits.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep::parts {
namespace {

bool is_norm_grad(const Part& part) {
  return part.kind == Kind::kRmsNormGrad || part.kind == Kind::kLayerNormGrad;
}
bool is_of_head(const Part& part) {
  return part.kind == Kind::kRopeBack ||
         (is_norm_grad(part) && (part.param == "q_norm" || part.param == "k_norm"));
}

}  // namespace

void follow_nn(Written& forward) {
  std::map<ValueId, const Part*> maker;
  std::vector<ValueId> head_stats;
  for (Part& part : forward.parts) {
    for (const ValueId made : part.out) maker[made] = &part;
    if (part.kind == Kind::kReduceRows) part.holds = maker.at(part.in[0])->in;
    if (part.param == "q_norm" || part.param == "k_norm")
      head_stats.insert(head_stats.end(), part.out.begin() + 1, part.out.end());
    if (part.kind == Kind::kAttention) part.holds = std::exchange(head_stats, {});
  }
}

void follow_nn(Backward& backward) {
  const auto begin = std::ranges::find_if(backward.input, is_of_head);
  const auto end = std::find_if_not(begin, backward.input.end(), is_of_head);
  std::stable_sort(begin, end, [](const Part& a, const Part& b) {
    return std::pair(is_norm_grad(a), a.origin) < std::pair(is_norm_grad(b), b.origin);
  });
  if (end - begin >= 2) {
    end[-1].holds = {end[-2].in.begin() + 2, end[-2].in.end()};
    if (begin->kind == Kind::kRopeBack) {
      begin[0].in.push_back(begin[1].in[0]);
      begin[0].out.push_back(begin[1].out[0]);
      backward.input.erase(begin + 1);
    }
  }
  std::ranges::stable_sort(backward.weight, {}, [](const Part& part) {
    const bool finished = part.kind == Kind::kAccumulate || part.kind == Kind::kAccumulateBias;
    return std::pair(finished, part.origin);
  });
}

}  // namespace lockstep::parts
