#include "lockstep/program/lower.h"

#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/pipeline/layer_split.h"
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
  LS_TRY(check_step(step));
  return attach_all(expand_units(schedule, std::move(step)));
}

Result<Program> lower_forward_only(StepShape step) {
  step.forward_only = true;
  step.noise = false;
  step.checks = false;
  LS_TRY(check_step(step));
  return attach_all(expand_forward(std::move(step)));
}

std::vector<std::int32_t> first_units(const std::vector<int>& layers) {
  LS_CHECK(!layers.empty(), "no stages");
  std::vector<std::int32_t> begin = {0};
  for (const int count : layers)
    begin.push_back(begin.back() + count + (begin.size() == 1 ? 1 : 0));  // the embedding
  ++begin.back();                                                         // the head
  return begin;
}

std::vector<std::int32_t> split_units(int units, int stages) {
  return first_units(pipeline::default_layer_split(units - 2, stages));
}

}  // namespace lockstep::program
