// Who has made what when, while a schedule is timed stage by stage.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/pipeline/schedule.h"
#include "lockstep/sim/stage_sim.h"

namespace lockstep::sim {

// Belongs to one thread.
class StageBoard {
 public:
  StageBoard(const pipeline::Schedule& schedule, const StageCosts& costs)
      : StageBoard(schedule.shape(), schedule.placement(), costs) {}
  StageBoard(const pipeline::Shape& shape, pipeline::Placement placement, const StageCosts& costs)
      : shape_(shape), placement_(placement), costs_(costs) {
    const auto stages = static_cast<std::size_t>(shape_.stages());
    LS_CHECK(costs.forward.size() == stages && costs.input_grad.size() == stages &&
                 costs.weight_grad.size() == stages,
             "costs for ", costs.forward.size(), ", ", costs.input_grad.size(), " and ",
             costs.weight_grad.size(), " of ", stages, " stages");
    outputs_.resize(stages * shape_.microbatches, kNever);
    grads_ = outputs_;
  }

  Seconds duration(const pipeline::Pass& pass) const {
    switch (pass.kind) {
      case pipeline::PassKind::kForward:
        return costs_.forward[pass.stage.value];
      case pipeline::PassKind::kInputGrad:
        return costs_.input_grad[pass.stage.value];
      case pipeline::PassKind::kWeightGrad:
        return costs_.weight_grad[pass.stage.value];
      case pipeline::PassKind::kBackward:
        return costs_.input_grad[pass.stage.value] + costs_.weight_grad[pass.stage.value];
    }
    LS_CHECK(false, "pass of kind ", static_cast<int>(pass.kind));
  }

  // When the pass has what it takes from another stage; nothing while that is not known. What it
  // takes from its own stage stands before it in the same list.
  std::optional<Seconds> ready(const pipeline::Pass& pass) const {
    const bool is_forward = pass.kind == pipeline::PassKind::kForward;
    const Stage from = {pass.stage.value + (is_forward ? -1 : 1)};
    const bool is_own = pass.kind == pipeline::PassKind::kWeightGrad;
    if (is_own || from.value < 0 || from.value == shape_.stages()) return Seconds{};
    const Seconds made = (is_forward ? outputs_ : grads_)[shape_.index(from, pass.microbatch)];
    if (made == kNever) return std::nullopt;
    const bool hops = coord_of(placement_, from, shape_.coords) !=
                      coord_of(placement_, pass.stage, shape_.coords);
    return hops ? made + costs_.hop : made;
  }

  void finish(const pipeline::Pass& pass, Seconds end) {
    if (pass.kind == pipeline::PassKind::kWeightGrad) return;
    const bool is_forward = pass.kind == pipeline::PassKind::kForward;
    (is_forward ? outputs_ : grads_)[shape_.index(pass.stage, pass.microbatch)] = end;
  }

 private:
  static constexpr Seconds kNever = {std::numeric_limits<double>::infinity()};

  pipeline::Shape shape_;
  pipeline::Placement placement_;
  const StageCosts& costs_;
  std::vector<Seconds> outputs_, grads_;  // when made, per stage and microbatch
};

// Lets every pipeline rank go on as long as it can, until none can.
template <class Advance>  // bool(int coord): whether it did something
void run_to_the_end(int coords, const Advance& advance) {
  for (bool moved = true; moved;) {
    moved = false;
    for (int coord = 0; coord < coords; ++coord)
      while (advance(coord)) moved = true;
  }
}

}  // namespace lockstep::sim
