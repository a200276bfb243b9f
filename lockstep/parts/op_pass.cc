#include "lockstep/parts/op_pass.h"

namespace lockstep::parts {

using model::UnitKind;
using program::OpKind;

std::optional<UnitPass> pass_of(const program::StepShape& step, const model::Unit& unit,
                                const program::Op& op) {
  switch (op.kind) {
    case OpKind::kForward:
      if (step.forward_only) return UnitPass::kEvaluate;
      return unit.kind == UnitKind::kBlock && step.recomputes(op.unit) ? UnitPass::kCheckpoint
                                                                       : UnitPass::kForward;
    case OpKind::kRecompute:
      return UnitPass::kRecompute;
    case OpKind::kBackward:
      return unit.kind != UnitKind::kHead && step.begins_period(op.microbatch)
                 ? UnitPass::kFirstBackward
                 : UnitPass::kBackward;
    case OpKind::kInputGrad:
      return UnitPass::kInputGrad;
    case OpKind::kWeightGrad:
      return UnitPass::kWeightGrad;
    default:
      return std::nullopt;
  }
}

}  // namespace lockstep::parts
