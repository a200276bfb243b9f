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
  if (kind == parts::Kind::kExchange || kind == parts::Kind::kAllToAll ||
      kind == parts::Kind::kDispatch || kind == parts::Kind::kCombine)
    return comm::OpKind::kAllToAll;
  return comm::OpKind::kAllReduce;
}

class Count {
 public:
  Count(const program::Program& program, const model::Model& model, const StepSizes& sizes,
        const mesh::Mesh& mesh, Rank rank, const model::RowsMetBy& rows_met)
      : program_(program),
        model_(model),
        sizes_(sizes),
        messages_(program, model, sizes, mesh, rank),
        rows_met_(rows_met) {}

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
    const bool shares = sizes_.unit.tp > 1 || sizes_.unit.cp > 1 || sizes_.unit.ep > 1;
    if (!shares || op.microbatch < 0 || op.unit < 0) return;
    const auto kind = model_.order[static_cast<std::size_t>(op.unit)];
    const parts::UnitPasses& passes =
        passes_.try_emplace(kind, model_.config, model_.unit(op.unit), sizes_.unit).first->second;
    const auto pass = parts::pass_of(program_.step, model_.unit(op.unit), op);
    if (!pass) return;
    const auto rows = rows_met_.find({op.unit, op.microbatch});
    if (rows == rows_met_.end()) return add(passes.collectives(*pass));
    add(passes.where_met(rows->second).collectives(*pass));
  }
  void add(const std::vector<parts::Collective>& collectives) {
    for (const parts::Collective& one : collectives)
      count(to_text(mesh::AxisSet(axis_of(one.group))), as_counted(one.kind), sent(one));
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
  const model::RowsMetBy& rows_met_;
  std::map<int, parts::UnitPasses> passes_;  // by distinct unit
  Traffic traffic_;
};

}  // namespace

mesh::Axis axis_of(parts::Group group) {
  switch (group) {
    case parts::Group::kTensor:
      return mesh::Axis::kTensor;
    case parts::Group::kContext:
      return mesh::Axis::kContext;
    case parts::Group::kExpertTensor:
      return mesh::Axis::kExpertTensor;
    case parts::Group::kExpert:
      break;
  }
  return mesh::Axis::kExpert;
}

Traffic step_traffic(const program::Program& program, const model::Model& model,
                     const StepSizes& sizes, const mesh::Mesh& mesh, Rank rank,
                     const model::RowsMetBy& rows_met) {
  return Count(program, model, sizes, mesh, rank, rows_met).run();
}

}  // namespace lockstep::cost
