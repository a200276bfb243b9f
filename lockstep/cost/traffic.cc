#include "lockstep/cost/traffic.h"

#include <map>
#include <utility>
#include <vector>

#include "lockstep/cost/op_messages.h"
#include "lockstep/parts/op_pass.h"
#include "lockstep/parts/unit_passes.h"

namespace lockstep::cost {
namespace {

comm::OpKind as_counted(parts::Kind kind) {
  if (kind == parts::Kind::kAllGather) return comm::OpKind::kAllGather;
  if (kind == parts::Kind::kReduceScatter) return comm::OpKind::kReduceScatter;
  if (kind == parts::Kind::kExchange || kind == parts::Kind::kAllToAll)
    return comm::OpKind::kAllToAll;
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
        tensor_axis_(to_text(mesh::AxisSet(mesh::Axis::kTensor))),
        context_axis_(to_text(mesh::AxisSet(mesh::Axis::kContext))) {}

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
    if ((sizes_.unit.tp == 1 && sizes_.unit.cp == 1) || op.microbatch < 0 || op.unit < 0) return;
    const auto kind = model_.order[static_cast<std::size_t>(op.unit)];
    const parts::UnitPasses& passes =
        passes_.try_emplace(kind, model_.config, model_.unit(op.unit), sizes_.unit).first->second;
    if (const auto pass = parts::pass_of(program_.step, model_.unit(op.unit), op))
      for (const parts::Collective& one : passes.collectives(*pass))
        count(one.group == parts::Group::kTensor ? tensor_axis_ : context_axis_,
              as_counted(one.kind), sent(one));
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
  const std::string tensor_axis_, context_axis_;
  std::map<int, parts::UnitPasses> passes_;  // by distinct unit
  Traffic traffic_;
};

}  // namespace

Traffic step_traffic(const program::Program& program, const model::Model& model,
                     const StepSizes& sizes, const mesh::Mesh& mesh, Rank rank) {
  return Count(program, model, sizes, mesh, rank).run();
}

}  // namespace lockstep::cost
