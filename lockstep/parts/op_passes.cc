#include "lockstep/parts/op_passes.h"

namespace lockstep::parts {

using model::UnitKind;
using program::OpKind;

std::vector<UnitPass> op_passes(const program::StepShape& step, const model::Unit& unit,
                                const program::Op& op) {
  switch (op.kind) {
    case OpKind::kForward:
      if (step.forward_only) return {UnitPass::kEvaluate};
      if (unit.kind == UnitKind::kBlock && step.recomputes(op.unit)) return {UnitPass::kCheckpoint};
      return {UnitPass::kForward};
    case OpKind::kRecompute:
      return {UnitPass::kRecompute};
    case OpKind::kBackward:
      if (unit.kind == UnitKind::kHead) return {UnitPass::kHeadGrad};
      return {UnitPass::kBackwardInput, UnitPass::kBackwardWeight};
    case OpKind::kInputGrad:
      return {UnitPass::kInputGrad};
    case OpKind::kWeightGrad:
      return {UnitPass::kWeightGrad};
    default:
      return {};
  }
}

bool writes_gradients(UnitPass pass) {
  return pass == UnitPass::kWeightGrad || pass == UnitPass::kBackwardWeight ||
         pass == UnitPass::kHeadGrad;
}

}  // namespace lockstep::parts
