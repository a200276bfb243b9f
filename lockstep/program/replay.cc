#include "lockstep/program/list_checks.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/program/effects.h"
#include "lockstep/program/text.h"

namespace lockstep::program {
namespace {

struct ValueHash {
  std::size_t operator()(const Value& v) const {
    const auto low = static_cast<std::uint64_t>(static_cast<std::uint32_t>(v.a));
    const auto high = static_cast<std::uint64_t>(static_cast<std::uint32_t>(v.b));
    const std::uint64_t bits = (high << 32 | low) * 32 + static_cast<std::uint64_t>(v.kind);
    return static_cast<std::size_t>((bits ^ bits >> 29) * 0x9E3779B97F4A7C15ULL >> 7);
  }
};

struct State {
  bool is_live = false;
  bool is_stale = false;     // weights of the step before, until Publish
  bool is_final = false;     // read by Norm
  std::int32_t maker = -1;   // asynchronous op in flight that makes or changes it
  std::int32_t readers = 0;  // asynchronous ops in flight that read it
  std::int32_t changes = 0;  // times it was defined or changed
};

class Replay {
 public:
  Replay(const Program& program, Coord coord, Problems& problems)
      : program_(program),
        step_(program.step),
        list_(program.list(coord)),
        coord_(coord),
        problems_(problems),
        is_waited_for_(list_.size(), false) {
    states_.reserve(list_.size());
    const bool is_gathered = step_.zero == 1 || step_.zero == 2;
    for (const Value& value : persistent(step_, coord))
      states_[value] = {.is_live = true,
                        .is_stale = is_gathered && value.kind == ValueKind::kParam};
  }

  void run() {
    Effects fx;
    for (at_ = 0; at_ < list_.size() && !problems_.is_full(); ++at_) {
      const Op& op = list_[at_];
      if (op.kind == OpKind::kWait && !land(op.target)) continue;
      write_effects(program_, coord_, op, fx);
      apply(op, fx);
    }
    if (problems_.is_full()) return;
    check_waits();
    check_end();
  }

 private:
  void report(std::string what) {
    problems_.add(coord_, static_cast<std::int32_t>(at_), std::move(what));
  }

  std::string name(std::int32_t index) const {
    return op_text(program_, coord_, list_[index]) + " (op " + std::to_string(index) + ")";
  }

  // What the op holds from its issue to its Wait is released.
  bool land(std::size_t target) {
    if (is_waited_for_[target]) return report("a second wait for the same op"), false;
    is_waited_for_[target] = true;
    Effects& fx = landing_;
    write_effects(program_, coord_, list_[target], fx);
    for (const Value& value : fx.reads)
      if (is_guarded(fx, value)) --states_[value].readers;
    for (const auto* made : {&fx.defines, &fx.mutates})
      for (const Value& value : *made) states_[value].maker = -1;
    return true;
  }

  void apply(const Op& op, const Effects& fx) {
    if (op.kind == OpKind::kAllGatherUpdated)
      for (const Value& value : fx.mutates) states_[value].is_stale = false;
    for (const Value& value : fx.reads) need_complete(value, "reads ");
    for (const Value& value : fx.mutates) need_alone(value, "changes ");
    for (const Value& value : fx.mutates)
      if (states_[value].is_final) report("changes " + to_text(value) + " after norm used it");
    for (const Value& value : fx.kills) need_alone(value, "frees ");
    if (op.kind == OpKind::kNorm || op.kind == OpKind::kReduceTied ||
        op.kind == OpKind::kReduceReplicated)
      need_whole_sums(op, fx);
    if (op.kind == OpKind::kUpdate && op.unit == step_.head() && step_.shares_state())
      need_update_of_embedding();
    for (const Value& value : fx.reads) states_[value].is_final |= op.kind == OpKind::kNorm;
    if (op.kind == OpKind::kWait) need_periods_in_order(list_[op.target], fx);
    for (const Value& value : fx.mutates) ++states_[value].changes;
    for (const Value& value : fx.kills) states_[value] = {};
    for (const Value& value : fx.defines) define(value);
    if (is_async(op.kind)) take_off(fx);
  }

  void need_complete(const Value& value, const char* does) {
    const State& state = states_[value];
    if (!state.is_live)
      report(does + to_text(value) + ", which does not exist here");
    else if (state.maker >= 0)
      report(does + to_text(value) + " before a wait for " + name(state.maker));
    else if (state.is_stale)
      report(does + to_text(value) + " before it is all-gathered");
  }

  void need_alone(const Value& value, const char* does) {
    need_complete(value, does);
    if (states_[value].readers > 0)
      report(does + to_text(value) + ", which an asynchronous op in flight still reads");
  }

  void define(const Value& value) {
    State& state = states_[value];
    if (state.is_live) report("defines " + to_text(value) + ", which exists already");
    state.is_live = true;
    ++state.changes;
  }

  // A gradient is summed over all periods, then over the tensor group where it is partial there,
  // then with the tied weight's other end, before it is used.
  void need_whole_sums(const Op& op, const Effects& fx) {
    for (const auto* used : {&fx.reads, &fx.mutates})
      for (const Value& value : *used) {
        if (value.a < 0 || value != final_grad(step_, value.a)) continue;
        const bool is_tied = step_.tied && (value.a == 0 || value.a == step_.head());
        int needed = step_.periods();
        if (op.kind != OpKind::kReduceReplicated && step_.is_partial(value.a)) ++needed;
        if (op.kind == OpKind::kNorm && is_tied) ++needed;
        if (states_[value].changes < needed)
          report(join_parts("uses ", to_text(value), " after ", states_[value].changes, " of ",
                            needed, " reductions"));
      }
  }

  // Of a tied weight with one state the head takes over what the embedding's update makes.
  void need_update_of_embedding() {
    if (states_[{ValueKind::kOptimizer, 0}].changes == 0)
      report("takes the tied weight over before unit 0 is updated");
  }

  // Sums of floating point numbers depend on the order.
  void need_periods_in_order(const Op& reduction, const Effects& fx) {
    for (const Value& value : fx.mutates)
      if (value == final_grad(step_, reduction.unit) && states_[value].changes != reduction.period)
        report("adds period " + std::to_string(reduction.period) + " to " + to_text(value) +
               " in the place of period " + std::to_string(states_[value].changes));
  }

  // What was moved out of reach at issue needs no guard.
  static bool is_guarded(const Effects& fx, const Value& read) {
    return std::ranges::find(fx.kills, read) == fx.kills.end();
  }

  void take_off(const Effects& fx) {
    for (const Value& value : fx.reads)
      if (is_guarded(fx, value)) ++states_[value].readers;
    for (const auto* made : {&fx.defines, &fx.mutates})
      for (const Value& value : *made) states_[value].maker = static_cast<std::int32_t>(at_);
  }

  void check_waits() {
    for (at_ = 0; at_ < list_.size(); ++at_)
      if (is_async(list_[at_].kind) && !is_waited_for_[at_]) report("nothing waits for it");
  }

  void check_end() {
    std::vector<Value> left;
    for (const auto& [value, state] : states_)
      if (state.is_live && value.kind != ValueKind::kCount && value.kind != ValueKind::kNorm)
        left.push_back(value);
    std::vector<Value> kept = persistent(step_, coord_);
    std::ranges::sort(left);
    std::ranges::sort(kept);
    for (const Value& value : left)
      if (!std::ranges::binary_search(kept, value))
        problems_.add(coord_, to_text(value) + " is never freed");
    for (const Value& value : kept)
      if (!std::ranges::binary_search(left, value))
        problems_.add(coord_, to_text(value) + " does not outlive the step");
  }

  const Program& program_;
  const StepShape& step_;
  const std::vector<Op>& list_;
  Coord coord_;
  Problems& problems_;
  std::size_t at_ = 0;
  std::unordered_map<Value, State, ValueHash> states_;
  Effects landing_;
  std::vector<bool> is_waited_for_;
};

}  // namespace

void check_values(const Program& program, Coord coord, Problems& problems) {
  Replay(program, coord, problems).run();
}

}  // namespace lockstep::program
