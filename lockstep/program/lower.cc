#include "lockstep/program/lower.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/program/passes/passes.h"

namespace lockstep::program {
namespace {

Program attach_all(Draft draft) {
  draft = add_transfers(std::move(draft));
  for (std::size_t c = 0; c < draft.lists.size(); ++c)
    for (const auto add : {add_loads, add_parameters, add_reductions, add_update})
      add(draft, {static_cast<std::int32_t>(c)}, draft.lists[c]);
  return flatten(std::move(draft));
}

}  // namespace

Result<Program> lower(const pipeline::Schedule& schedule, StepShape step) {
  step.shape = schedule.shape();
  step.placement = schedule.placement();
  step.forward_only = false;
  if (Result<void> fits = check_step(step); !fits.ok()) return fits.error();
  return attach_all(expand_units(schedule, std::move(step)));
}

Result<Program> lower_forward_only(StepShape step) {
  step.forward_only = true;
  step.noise = false;
  if (Result<void> fits = check_step(step); !fits.ok()) return fits.error();
  return attach_all(expand_forward(std::move(step)));
}

std::vector<std::int32_t> split_units(int units, int stages) {
  LS_CHECK(units >= 2 && stages >= 1, units, " units over ", stages, " stages");
  const int blocks = units - 2;
  const int each = blocks / stages, rest = blocks % stages;
  const int between = each > 0 ? 0 : std::min(blocks, stages - 2);  // served first
  std::vector<std::int32_t> begin = {0};
  for (int stage = 0; stage < stages; ++stage) {
    int count = each;
    if (between > 0)
      count = stage == 0 ? blocks - between : stage <= between ? 1 : 0;
    else if (stage < rest)
      ++count;
    if (stage == 0) ++count;
    if (stage == stages - 1) ++count;
    begin.push_back(begin.back() + count);
  }
  return begin;
}

}  // namespace lockstep::program
