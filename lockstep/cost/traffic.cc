#include "lockstep/cost/traffic.h"

#include <map>
#include <utility>
#include <vector>

#include "lockstep/cost/op_messages.h"
#include "lockstep/cost/op_passes.h"
#include "lockstep/model/unit_traffic.h"

namespace lockstep::cost {
namespace {

comm::OpKind as_counted(model::TensorOp op) {
  switch (op) {
    case model::TensorOp::kAllGather:
      return comm::OpKind::kAllGather;
    case model::TensorOp::kReduceScatter:
      return comm::OpKind::kReduceScatter;
    case model::TensorOp::kAllReduce:
      break;
  }
  return comm::OpKind::kAllReduce;
}

class Count {
 public:
  Count(const program::Program& program, const model::Model& model, const StepSizes& sizes,
        const mesh::Mesh& mesh, Rank rank)
      : program_(program),
        model_(model),
        sizes_(sizes),
        messages_(program, model, sizes, mesh, rank),
        tensor_axis_(to_text(mesh::AxisSet(mesh::Axis::kTensor))) {}

  Traffic run() {
    for (const program::Op& op : program_.list(messages_.coord())) {
      for (const Message& message : messages_.of(op))
        count(message.axis, message.kind, message.sent);
      add_passes(op);
    }
    return std::move(traffic_);
  }

 private:
  void add_passes(const program::Op& op) {
    if (sizes_.unit.tp == 1 || op.unit < 0) return;
    for (const model::UnitPass pass : op_passes(program_.step, model_.unit(op.unit), op))
      for (const model::TensorCollective& one : collectives(op.unit, pass))
        count(tensor_axis_, as_counted(one.op), model::sent(one, sizes_.unit.tp));
  }

  const std::vector<model::TensorCollective>& collectives(int unit, model::UnitPass pass) {
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

  const program::Program& program_;
  const model::Model& model_;
  const StepSizes& sizes_;
  const OpMessages messages_;
  const std::string tensor_axis_;
  // By distinct unit and pass: a step repeats them for every layer and microbatch.
  std::map<std::pair<int, model::UnitPass>, std::vector<model::TensorCollective>> collectives_;
  Traffic traffic_;
};

}  // namespace

Traffic step_traffic(const program::Program& program, const model::Model& model,
                     const StepSizes& sizes, const mesh::Mesh& mesh, Rank rank) {
  return Count(program, model, sizes, mesh, rank).run();
}

}  // namespace lockstep::cost
