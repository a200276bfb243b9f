#include "lockstep/cost/traffic.h"

#include <map>
#include <utility>
#include <vector>

#include "lockstep/arch/unit_traffic.h"
#include "lockstep/cost/op_messages.h"
#include "lockstep/cost/op_passes.h"

namespace lockstep::cost {
namespace {

comm::OpKind as_counted(arch::TensorOp op) {
  switch (op) {
    case arch::TensorOp::kAllGather:
      return comm::OpKind::kAllGather;
    case arch::TensorOp::kReduceScatter:
      return comm::OpKind::kReduceScatter;
    case arch::TensorOp::kAllReduce:
      break;
  }
  return comm::OpKind::kAllReduce;
}

class Count {
 public:
  Count(const schedule::Program& program, const arch::Model& model, const StepSizes& sizes,
        const mesh::Mesh& mesh, Rank rank)
      : program_(program),
        model_(model),
        sizes_(sizes),
        messages_(program, model, sizes, mesh, rank),
        tensor_axis_(to_text(mesh::AxisSet(mesh::Axis::kTensor))) {}

  Traffic run() {
    for (const schedule::Op& op : program_.list(messages_.coord())) {
      for (const Message& message : messages_.of(op))
        count(message.axis, message.kind, message.sent);
      add_passes(op);
    }
    return std::move(traffic_);
  }

 private:
  void add_passes(const schedule::Op& op) {
    if (sizes_.unit.tp == 1 || op.unit < 0) return;
    for (const arch::UnitPass pass : op_passes(program_.step, model_.unit(op.unit), op))
      for (const arch::TensorCollective& one : collectives(op.unit, pass))
        count(tensor_axis_, as_counted(one.op), arch::sent(one, sizes_.unit.tp));
  }

  const std::vector<arch::TensorCollective>& collectives(int unit, arch::UnitPass pass) {
    const std::pair key(model_.order[static_cast<std::size_t>(unit)], pass);
    const auto known = collectives_.find(key);
    if (known != collectives_.end()) return known->second;
    return collectives_[key] =
               pass_collectives(model_.config, model_.unit(unit), sizes_.unit, pass);
  }

  void count(const std::string& axis, comm::OpKind op, std::int64_t bytes) {
    comm::Ledger::Entry& entry = traffic_[{axis, op}];
    ++entry.calls;
    entry.sent += Bytes{bytes};
  }

  const schedule::Program& program_;
  const arch::Model& model_;
  const StepSizes& sizes_;
  const OpMessages messages_;
  const std::string tensor_axis_;
  // By distinct unit and pass: a step repeats them for every layer and microbatch.
  std::map<std::pair<int, arch::UnitPass>, std::vector<arch::TensorCollective>> collectives_;
  Traffic traffic_;
};

}  // namespace

Traffic step_traffic(const schedule::Program& program, const arch::Model& model,
                     const StepSizes& sizes, const mesh::Mesh& mesh, Rank rank) {
  return Count(program, model, sizes, mesh, rank).run();
}

}  // namespace lockstep::cost
