#include <string>

#include "lockstep/base/check.h"
#include "lockstep/program/passes/passes.h"

namespace lockstep::program {
namespace {

constexpr std::int64_t kMaxUnitPasses = std::int64_t{1} << 24;  // positions fit 32 bits

Error refuse(std::string message, std::string help) {
  return {Code::kOutOfRange, std::move(message), std::move(help)};
}

Result<void> check_stages(const StepShape& step) {
  const auto& begin = step.stage_begin;
  const auto wanted = static_cast<std::size_t>(step.shape.stages()) + 1;
  if (begin.size() != wanted)
    return refuse(
        join_parts("stage_begin has ", begin.size(), " entries for ", wanted - 1, " stages"),
        "give the first unit of each stage, then the number of units");
  if (begin.front() != 0)
    return refuse("stage_begin starts with unit " + std::to_string(begin.front()),
                  "the first stage begins with unit 0, the embedding");
  for (std::size_t stage = 0; stage + 1 < wanted; ++stage)
    if (begin[stage] >= begin[stage + 1])
      return refuse(join_parts("stage ", stage, " has no unit: it begins with ", begin[stage],
                               ", the next with ", begin[stage + 1]),
                    "use at most as many stages as units, in ascending order");
  if (step.units() < 2)
    return refuse("a model of " + std::to_string(step.units()) + " unit has no embedding or head",
                  "give at least 2 units");
  if (std::int64_t{step.units()} * step.shape.microbatches > kMaxUnitPasses)
    return refuse("units x microbatches is more than " + std::to_string(kMaxUnitPasses),
                  "use fewer microbatches");
  return {};
}

Result<void> check_per_unit(const char* name, const std::vector<bool>& given, int units) {
  if (given.empty() || given.size() == static_cast<std::size_t>(units)) return {};
  return refuse(join_parts(name, " has ", given.size(), " entries for ", units, " units"),
                "give one entry per unit, or none");
}

Result<void> check_recompute(const StepShape& step) {
  LS_TRY(check_per_unit("recompute", step.recompute, step.units()));
  for (const int unit : {0, step.head()})
    if (step.recomputes(unit))
      return refuse(join_parts("unit ", unit, ", the ", unit == 0 ? "embedding" : "head",
                               ", is to be recomputed"),
                    "recompute blocks alone: embedding and head keep nothing worth it");
  return {};
}

Result<void> check_partial(const StepShape& step) {
  LS_TRY(check_per_unit("partial", step.partial, step.units()));
  if (!step.partial.empty() && !step.tensor_parallel)
    return refuse("partial gradients are given without tensor parallelism",
                  "set tensor_parallel, or leave partial empty");
  return {};
}

Result<void> check_experts(const StepShape& step) {
  LS_TRY(check_per_unit("experts", step.experts, step.units()));
  for (const int unit : {0, step.head()})
    if (step.has_experts(unit))
      return refuse(join_parts("unit ", unit, ", the ", unit == 0 ? "embedding" : "head",
                               ", is to have experts"),
                    "give blocks alone experts");
  return {};
}

Result<void> check_noise(const StepShape& step) {
  if (!step.noise || !step.tied) return {};
  return refuse("the noise scale of a tied weight: its gradient has a part on either end",
                "unset noise, or tied");
}

}  // namespace

Result<void> check_step(const StepShape& step) {
  LS_TRY(pipeline::check_shape(step.shape));
  if (step.zero < 0 || step.zero > 3)
    return refuse(join_parts("zero = ", step.zero, " is not between 0 and 3"), "give 0, 1, 2 or 3");
  if (step.resident_units < 1)
    return refuse("resident_units = " + std::to_string(step.resident_units) + " is less than 1",
                  "the unit in use is resident, so give at least 1");
  if (step.prefetch < 0)
    return refuse("prefetch = " + std::to_string(step.prefetch) + " is less than 0",
                  "give 0 to gather when needed, 1 to gather one computation early");
  LS_TRY(check_stages(step));
  LS_TRY(check_partial(step));
  LS_TRY(check_experts(step));
  LS_TRY(check_noise(step));
  return check_recompute(step);
}

}  // namespace lockstep::program
