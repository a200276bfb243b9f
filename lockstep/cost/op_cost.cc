#include "lockstep/cost/op_cost.h"

namespace lockstep::cost {

using program::OpKind;

Seconds OpTimes::time(const program::Op& op) const {
  const UnitTimes unit = op.unit >= 0 ? units[static_cast<std::size_t>(op.unit)] : UnitTimes{};
  switch (op.kind) {
    case OpKind::kForward:
      return unit.forward;
    case OpKind::kRecompute:
      return unit.recompute;
    case OpKind::kBackward:
      return unit.input_grad + unit.weight_grad;
    case OpKind::kInputGrad:
      return unit.input_grad;
    case OpKind::kWeightGrad:
      return unit.weight_grad;
    case OpKind::kGather:
    case OpKind::kAllGatherUpdated:
      return unit.gather;
    case OpKind::kReduce:
      return unit.reduce;
    case OpKind::kReduceAcross:
      return unit.reduce_across;
    case OpKind::kUpdate:
      return unit.update;
    case OpKind::kSend:
      return send;
    case OpKind::kReduceTied:
      return tied;
    case OpKind::kNorm:
      return norm;
    default:
      return {};
  }
}

}  // namespace lockstep::cost
