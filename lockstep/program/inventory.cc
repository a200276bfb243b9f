#include "lockstep/program/inventory.h"

#include <utility>

#include "lockstep/program/op_table.h"

namespace lockstep::program {
namespace {

class Inventory {
 public:
  Inventory(const StepShape& step, Coord coord, std::span<const Transfer> transfers)
      : step_(step), coord_(coord), transfers_(transfers) {}

  std::vector<Op> take(std::span<const Op> list) {
    note_splits(list);
    for (int unit = 0; unit < step_.units(); ++unit)
      if (step_.holds(coord_, unit)) add_unit(unit);
    add_tokens();
    add_transfers();
    add_step_end();
    return std::move(ops_);
  }

 private:
  void add(OpKind kind, Op op = {}) {
    op.kind = kind;
    op.group = usual_group(step_, op);
    ops_.push_back(op);
  }

  std::size_t place(std::size_t unit, int mb) const { return unit * step_.shape.microbatches + mb; }

  void note_splits(std::span<const Op> list) {
    is_split_.assign(place(step_.units(), 0), false);
    for (const Op& op : list)
      if ((op.kind == OpKind::kInputGrad || op.kind == OpKind::kWeightGrad) &&
          op.unit != step_.head())
        is_split_[place(op.unit, op.microbatch)] = true;
  }

  void add_unit(int unit) {
    for (int mb = 0; mb < step_.shape.microbatches; ++mb) {
      const Op at = {.unit = unit, .microbatch = mb};
      add(OpKind::kForward, at);
      if (step_.forward_only) continue;
      if (step_.recomputes(unit)) add(OpKind::kRecompute, at);
      if (is_split_[place(unit, mb)]) {
        add(OpKind::kInputGrad, at);
        add(OpKind::kWeightGrad, at);
      } else {
        add(OpKind::kBackward, at);
      }
    }
    step_.for_each_segment(unit, [&](int segment) { add_segment(segment); });
  }

  void add_segment(int segment) {
    if (step_.zero == 1 || step_.zero == 2) add(OpKind::kAllGatherUpdated, {.unit = segment});
    if (step_.forward_only) return;
    for (int period = 0; period < step_.periods(); ++period) {
      add(OpKind::kReduce, {.unit = segment, .period = period});
      if (step_.zero > 0 && step_.replicas)
        add(OpKind::kReduceAcross, {.unit = segment, .period = period});
    }
    if (step_.is_partial(segment)) add(OpKind::kReduceReplicated, {.unit = segment});
    add(OpKind::kUpdate, {.unit = segment});
  }

  void add_tokens() {
    const bool has_head = step_.holds(coord_, step_.head());
    if (has_head) add(OpKind::kCount);
    if (!has_head && !step_.holds(coord_, 0)) return;
    for (int mb = 0; mb < step_.shape.microbatches; ++mb) add(OpKind::kLoad, {.microbatch = mb});
  }

  void add_transfers() {
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      const Op at = {.transfer = static_cast<std::int32_t>(i)};
      if (transfers_[i].from == coord_) add(OpKind::kSend, at);
      if (transfers_[i].to == coord_) add(OpKind::kPostRecv, at);
    }
  }

  void add_step_end() {
    const bool holds_tied = step_.holds(coord_, 0) || step_.holds(coord_, step_.head());
    if (step_.tied && holds_tied && !step_.forward_only) add(OpKind::kReduceTied);
    add(OpKind::kNorm);
  }

  const StepShape& step_;
  Coord coord_;
  std::span<const Transfer> transfers_;
  std::vector<bool> is_split_;
  std::vector<Op> ops_;
};

}  // namespace

std::vector<Transfer> usual_transfers(const StepShape& step) {
  std::vector<Transfer> transfers;
  for (const bool is_grad : {false, true}) {
    if (is_grad && step.forward_only) break;
    for (int unit = 0; unit < step.head(); ++unit) {
      const Coord before = step.coord_of(unit);
      const Coord after = step.coord_of(unit + 1);
      if (before == after) continue;
      for (int mb = 0; mb < step.shape.microbatches; ++mb)
        transfers.push_back({.is_grad = is_grad,
                             .unit = unit,
                             .microbatch = mb,
                             .from = is_grad ? after : before,
                             .to = is_grad ? before : after});
    }
  }
  return transfers;
}

std::vector<Op> required_ops(const StepShape& step, Coord coord,
                             std::span<const Transfer> transfers, std::span<const Op> list) {
  return Inventory(step, coord, transfers).take(list);
}

}  // namespace lockstep::program
