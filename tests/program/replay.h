// Runs programs on nothing but effects.h: which values live, which are still being written or read
// by an asynchronous op, and how far coordinates get against each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/program/effects.h"

namespace lockstep::program {

inline bool is_compute(OpKind kind) {
  return kind >= OpKind::kForward && kind <= OpKind::kWeightGrad;
}

inline std::string to_token(const std::vector<Op>& list, const Op& op) {
  static constexpr const char* kNames[kNumOpKinds] = {"Load",
                                                      "Count",
                                                      "F",
                                                      "R",
                                                      "B",
                                                      "I",
                                                      "W",
                                                      "Send",
                                                      "PostRecv",
                                                      "Gather",
                                                      "Free",
                                                      "Reduce",
                                                      "ReduceAcross",
                                                      "ReduceTied",
                                                      "Norm",
                                                      "Update",
                                                      "Publish",
                                                      "Wait",
                                                      "ReduceReplicated"};
  const std::string name = kNames[static_cast<std::size_t>(op.kind)];
  if (op.kind == OpKind::kWait)
    return "Wait:" + to_token(list, list[static_cast<std::size_t>(op.target)]);
  if (is_compute(op.kind)) return std::to_string(op.unit) + name + std::to_string(op.microbatch);
  std::string text = name;
  for (const std::int32_t part : {op.unit, op.microbatch, op.period, op.transfer})
    if (part >= 0) text += (text == name ? "" : ",") + std::to_string(part);
  return text;
}

// One line per compute op: what stands before it, and itself.
inline std::string to_lines(const std::vector<Op>& list) {
  std::string text;
  for (const Op& op : list) text += to_token(list, op) + (is_compute(op.kind) ? '\n' : ' ');
  text.back() = '\n';
  return text;
}

// What one list does to the values of its coordinate. `fault` is the first broken rule.
struct Replay {
  std::string fault;
  std::size_t most_gathered = 0;  // ZeRO-3: whole parameters at once, experts left out
  int most_reducing = 0;          // reductions in flight of experts, or of all else
  int most_replicated = 0;        // and over the tensor group
  int most_sending = 0;           // to one coordinate
  int gathers = 0, expert_gathers = 0;
};

class Replayer {
 public:
  Replayer(const Program& program, Coord coord)
      : program_(program), coord_(coord), list_(program.list(coord)) {
    for (const Value& value : persistent(program.step, coord)) live_.insert(value);
  }

  Replay run() {
    for (at_ = 0; at_ < list_.size() && out_.fault.empty(); ++at_) step(list_[at_]);
    if (out_.fault.empty()) finish();
    return std::move(out_);
  }

 private:
  void fail(const std::string& what, const Value& value) {
    if (out_.fault.empty())
      out_.fault = to_token(list_, list_[std::min(at_, list_.size() - 1)]) + " at " +
                   std::to_string(at_) + " " + what + " " + to_text(value);
  }

  void step(const Op& op) {
    if (op.kind == OpKind::kWait) complete(static_cast<std::size_t>(op.target));
    const Effects effects = program::effects(program_, coord_, op);
    for (const Value& value : effects.reads) {
      if (!live_.contains(value)) fail("reads dead", value);
      if (writers_.contains(value)) fail("reads unfinished", value);
    }
    for (const auto* values : {&effects.mutates, &effects.kills})
      for (const Value& value : *values) {
        if (!live_.contains(value)) fail("changes or kills dead", value);
        if (writers_.contains(value) || readers_.contains(value))
          fail("changes or kills busy", value);
      }
    for (const Value& value : effects.kills) live_.erase(value);
    for (const Value& value : effects.defines) define(value);
    if (is_async(op.kind)) begin(op, effects);
    if (op.kind == OpKind::kGather) ++(is_experts(op.unit) ? out_.expert_gathers : out_.gathers);
    if (program_.step.zero != 3) return;
    const auto gathered = [&](const Value& value) {
      return value.kind == ValueKind::kParam && !is_experts(value.a);
    };
    out_.most_gathered = std::max(out_.most_gathered,
                                  static_cast<std::size_t>(std::ranges::count_if(live_, gathered)));
  }

  bool is_experts(int segment) const { return segment >= program_.step.units(); }

  void define(const Value& value) {
    if (!live_.insert(value).second) fail("defines live", value);
    if (!ever_.insert(value).second && value.kind != ValueKind::kParam)
      fail("defines again", value);
  }

  void begin(const Op& op, const Effects& effects) {
    in_flight_[at_] = effects;
    for (const Value& value : effects.reads) readers_.insert(value);
    for (const Value& value : effects.defines) writers_.insert(value);
    for (const Value& value : effects.mutates) writers_.insert(value);
    count(op, 1);
  }

  void complete(std::size_t target) {
    const auto found = in_flight_.find(target);
    if (found == in_flight_.end()) return fail("waits for what is not in flight", {});
    for (const Value& value : found->second.reads) readers_.erase(readers_.find(value));
    for (const Value& value : found->second.defines) writers_.erase(value);
    for (const Value& value : found->second.mutates) writers_.erase(value);
    in_flight_.erase(found);
    count(list_[target], -1);
  }

  void count(const Op& op, int change) {
    if (op.kind == OpKind::kReduce || op.kind == OpKind::kReduceAcross)
      out_.most_reducing =
          std::max(out_.most_reducing, reducing_[is_experts(op.unit) ? 1 : 0] += change);
    if (op.kind == OpKind::kReduceReplicated)
      out_.most_replicated = std::max(out_.most_replicated, replicated_ += change);
    if (op.kind != OpKind::kSend) return;
    const Transfer& transfer = program_.transfers[static_cast<std::size_t>(op.transfer)];
    int& sending = sending_[transfer.to.value];
    out_.most_sending = std::max(out_.most_sending, sending += change);
  }

  void finish() {
    if (!in_flight_.empty()) out_.fault = "something is never waited for";
    for (const Value& value : persistent(program_.step, coord_))
      if (live_.erase(value) == 0) fail("at the end lost", value);
    live_.erase({ValueKind::kCount});
    live_.erase({ValueKind::kNorm});
    for (const Value& value : live_) fail("at the end leaves", value);
  }

  const Program& program_;
  Coord coord_;
  const std::vector<Op>& list_;
  std::size_t at_ = 0;
  Replay out_;
  std::set<Value> live_, ever_, writers_;
  std::multiset<Value> readers_;
  std::map<std::size_t, Effects> in_flight_;
  std::map<std::int32_t, int> sending_;
  int reducing_[2] = {}, replicated_ = 0;
};

// Runs all coordinates against each other where every transfer is a rendezvous: waiting for a Send
// needs the PostRecv, and the other way round. Empty, or where a coordinate is stuck.
inline std::string stuck_at(const Program& program) {
  const std::size_t coords = program.lists.size();
  std::vector<std::size_t> next(coords);
  std::set<std::int32_t> sent, posted;
  std::map<OpKind, std::set<std::size_t>> arrived;
  const auto can_run = [&](std::size_t coord, const Op& op) {
    if (op.kind == OpKind::kNorm || op.kind == OpKind::kReduceTied) {
      arrived[op.kind].insert(coord);
      const StepShape& step = program.step;
      const bool one = step.coord_of(0) == step.coord_of(step.head());
      return arrived[op.kind].size() == (op.kind == OpKind::kNorm ? coords : one ? 1u : 2u);
    }
    if (op.kind != OpKind::kWait) return true;
    const Op& target = program.lists[coord][static_cast<std::size_t>(op.target)];
    if (target.kind == OpKind::kSend) return posted.contains(target.transfer);
    return target.kind != OpKind::kPostRecv || sent.contains(target.transfer);
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t coord = 0; coord < coords; ++coord)
      while (next[coord] < program.lists[coord].size() &&
             can_run(coord, program.lists[coord][next[coord]])) {
        const Op& op = program.lists[coord][next[coord]++];
        if (op.kind == OpKind::kSend) sent.insert(op.transfer);
        if (op.kind == OpKind::kPostRecv) posted.insert(op.transfer);
        moved = true;
      }
  }
  for (std::size_t coord = 0; coord < coords; ++coord)
    if (next[coord] < program.lists[coord].size())
      return "pipeline rank " + std::to_string(coord) + " at " +
             to_token(program.lists[coord], program.lists[coord][next[coord]]);
  return "";
}

// The transfers of each sender and receiver in the order in which ops of this kind stand in the
// lists.
inline std::map<std::pair<int, int>, std::vector<std::int32_t>> channel_orders(
    const Program& program, OpKind kind) {
  std::map<std::pair<int, int>, std::vector<std::int32_t>> orders;
  for (const auto& list : program.lists)
    for (const Op& op : list) {
      if (op.kind != kind) continue;
      const Transfer& row = program.transfers[static_cast<std::size_t>(op.transfer)];
      orders[{row.from.value, row.to.value}].push_back(op.transfer);
    }
  return orders;
}

}  // namespace lockstep::program
