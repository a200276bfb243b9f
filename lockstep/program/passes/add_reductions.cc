#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/program/op_table.h"
#include "lockstep/program/passes/passes.h"

namespace lockstep::program {
namespace {

// The reductions of one list, of experts or of all else: at most one in flight over the data group
// and one over the tensor group.
class Reductions {
 public:
  Reductions(const StepShape& step, DraftList& list) : step_(step), list_(list) {}

  void issue(std::int32_t at, std::int32_t segment, std::int32_t period) {
    finish(at);
    pending_ = op(OpKind::kReduce, segment, period);
    handle_ = list_.attach(at, Slot::kReduce, pending_);
  }

  void finish(std::int32_t at) {
    if (handle_ < 0) return;
    list_.attach_wait(at, Slot::kReduce, handle_);
    if (step_.replicas && step_.zero > 0) {
      const std::int32_t across = list_.attach(
          at, Slot::kReduce, op(OpKind::kReduceAcross, pending_.unit, pending_.period));
      list_.attach_wait(at, Slot::kReduce, across);
    }
    handle_ = -1;
    if (step_.is_partial(pending_.unit) && pending_.period + 1 == step_.periods()) {
      finish_replicated(at);
      replicated_ =
          list_.attach(at, Slot::kReduce, op(OpKind::kReduceReplicated, pending_.unit, -1));
    }
  }

  void finish_replicated(std::int32_t at) {
    if (replicated_ >= 0) list_.attach_wait(at, Slot::kReduce, replicated_);
    replicated_ = -1;
  }

 private:
  Op op(OpKind kind, std::int32_t segment, std::int32_t period) const {
    Op op = {.kind = kind, .unit = segment, .period = period};
    op.group = usual_group(step_, op);
    return op;
  }

  const StepShape& step_;
  DraftList& list_;
  Op pending_;
  std::int32_t handle_ = -1;
  std::int32_t replicated_ = -1;
};

}  // namespace

void add_reductions(const Draft& draft, Coord coord, DraftList& list) {
  std::map<Value, std::int32_t> last_of;  // per gradient, the last op that adds to it
  draft.for_each_compute(coord, [&](std::int32_t at, const Effects& effects) {
    for (const auto* values : {&effects.defines, &effects.mutates})
      for (const Value& value : *values)
        if (value.kind == ValueKind::kMainGrad) last_of[value] = at;
  });
  std::vector<std::pair<std::int32_t, Value>> in_order;
  for (const auto& [value, at] : last_of) in_order.emplace_back(at, value);
  std::ranges::sort(in_order);
  for (const bool experts : {false, true}) {
    Reductions reductions(draft.step(), list);
    for (const auto& [at, value] : in_order)
      if (draft.step().is_experts(value.a) == experts) reductions.issue(at, value.a, value.b);
    reductions.finish(list.end());
    reductions.finish_replicated(list.end());
  }
}

}  // namespace lockstep::program
