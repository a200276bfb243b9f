#include "lockstep/parts/overlap.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep::parts {
namespace {

bool reads_any(const Part& part, const std::vector<ValueId>& ids) {
  return std::ranges::find_first_of(part.in, ids) != part.in.end();
}

Part wait_for(const Part& collective) {
  Part wait{.kind = Kind::kWait, .in = collective.out, .out = {}, .repeats = collective.repeats};
  if (row_of(collective.kind).in_place == InPlace::kNever)
    wait.in.insert(wait.in.end(), collective.in.begin(), collective.in.end());
  return wait;
}

}  // namespace

Parts as_one_list(const Parts& input, const Parts& weight) {
  std::vector<Parts> in_front(input.size() + 1);  // of each part of I, and behind the last
  Parts gathers;
  for (const Part& part : weight) {
    if (row_of(part.kind).collective) {
      gathers.push_back(part);
      continue;
    }
    std::size_t at = 0;
    for (std::size_t i = 0; i < input.size(); ++i)
      if (reads_any(part, input[i].out) || std::ranges::any_of(gathers, [&](const Part& gather) {
            return reads_any(gather, input[i].out);
          }))
        at = i + 1;
    const bool is_reduced = at + 1 < input.size() && input[at].origin == part.origin &&
                            row_of(input[at + 1].kind).collective &&
                            reads_any(input[at + 1], input[at].out);
    std::ranges::move(gathers, std::back_inserter(in_front[at]));
    in_front[is_reduced ? at + 2 : at].push_back(part);
    gathers.clear();
  }
  Parts all;
  for (std::size_t i = 0; i <= input.size(); ++i) {
    std::ranges::move(in_front[i], std::back_inserter(all));
    if (i < input.size()) all.push_back(input[i]);
  }
  return all;
}

Parts with_waits(const Parts& parts, bool beside) {
  Parts all, waits;
  const auto wait_where = [&](auto due) {
    const auto rest = std::stable_partition(waits.begin(), waits.end(), due);
    all.insert(all.end(), waits.begin(), rest);
    waits.erase(waits.begin(), rest);
  };
  for (const Part& part : parts) {
    wait_where([&](const Part& wait) {
      return !beside || wait.repeats != part.repeats || reads_any(part, {wait.in[0]});
    });
    all.push_back(part);
    if (row_of(part.kind).collective) waits.push_back(wait_for(part));
  }
  wait_where([](const Part&) { return true; });
  return all;
}

}  // namespace lockstep::parts
