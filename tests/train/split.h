// Zero-bubble order without a schedule that the runtime would accept: I and W apart.
#pragma once

#include <optional>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/schedule/catalog.h"
#include "lockstep/schedule/lower.h"

namespace lockstep::train {

// The same step with every B as I and, behind the next I of the stage or at the end, W.
inline schedule::Program split(const schedule::Program& program) {
  using schedule::Pass;
  using schedule::PassKind;
  const auto whole = schedule::find("1f1b")->build(program.step.shape);
  LS_CHECK(whole.ok(), "no schedule");
  std::vector<std::vector<Pass>> timetable;
  for (std::int32_t coord = 0; coord < program.step.shape.coords; ++coord) {
    std::vector<Pass>& passes = timetable.emplace_back();
    std::optional<Pass> waiting;
    for (Pass pass : whole->passes({coord})) {
      const bool is_backward = pass.kind == PassKind::kBackward;
      if (is_backward) pass.kind = PassKind::kInputGrad;
      passes.push_back(pass);
      if (!is_backward) continue;
      if (waiting) passes.push_back(*waiting);
      pass.kind = PassKind::kWeightGrad;
      waiting = pass;
    }
    passes.push_back(*waiting);
  }
  const auto made =
      schedule::Schedule::create(program.step.shape, program.step.placement, std::move(timetable));
  LS_CHECK(made.ok(), made.ok() ? "" : made.error().message);
  auto lowered = schedule::lower(*made, program.step);
  LS_CHECK(lowered.ok(), lowered.ok() ? "" : lowered.error().message);
  return *std::move(lowered);
}

}  // namespace lockstep::train
