#include "lockstep/sim/simulator.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/schedule/effects.h"
#include "lockstep/schedule/text.h"

namespace lockstep::sim {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Reach;

class Run {
 public:
  Run(const schedule::Program& program, const Cost& cost)
      : program_(program),
        cost_(cost),
        coords_(program.lists.size()),
        transfers_(program.transfers.size()) {
    for (std::size_t c = 0; c < coords_.size(); ++c)
      coords_[c].done.resize(program.lists[c].size());
  }

  Result<Simulation> simulate() {
    for (std::size_t c = 0; c < coords_.size(); ++c) runnable_.insert({{}, static_cast<int>(c)});
    while (!runnable_.empty()) {
      const auto [time, c] = runnable_.extract(runnable_.begin()).value();
      const bool is_now = coords_[index(c)].now == time;  // else it has moved on since it was woken
      if (is_now && advance(c)) wake(c);
    }
    Simulation result;
    for (std::size_t c = 0; c < coords_.size(); ++c) {
      if (coords_[c].next < program_.lists[c].size()) return stuck(static_cast<int>(c));
      result.makespan = std::max(result.makespan, coords_[c].now);
      result.coords.push_back(std::move(coords_[c].timeline));
      result.waited.push_back(coords_[c].waited);
      std::ranges::sort(coords_[c].lanes, {}, &schedule::TimedOp::op);
      result.lanes.push_back(std::move(coords_[c].lanes));
    }
    return result;
  }

 private:
  struct CoordState {
    std::size_t next = 0;
    Seconds now;
    Seconds waited;
    std::map<Reach, Seconds> lane_free;
    std::vector<std::optional<Seconds>> done;  // of asynchronous ops, once known
    schedule::Timeline timeline;
    schedule::Timeline lanes;
  };
  struct End {
    Seconds posted;
    std::int32_t op = 0;
  };
  struct TransferState {
    std::optional<End> sent, received;
    std::optional<Seconds> done;
  };
  // Members of a meeting that spans coordinates, in the order in which it happens.
  struct Meeting {
    std::vector<int> arrived;
    Seconds start;
  };

  const Op& op_at(int c) const { return program_.lists[index(c)][coords_[index(c)].next]; }
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  // The coordinate that is least far in time goes next, so that posts are seen in the order of time
  // and not of coordinates: what is ready first passes first.
  void wake(int c) { runnable_.insert({coords_[index(c)].now, c}); }

  // Performs the next op of a coordinate if it can be; false when it must wait for another, which
  // wakes it.
  bool advance(int c) {
    CoordState& state = coords_[index(c)];
    if (state.next >= program_.lists[index(c)].size()) return false;
    const Op& op = op_at(c);
    if (op.kind == OpKind::kWait) return wait(c, op);
    if (op.kind == OpKind::kNorm || op.kind == OpKind::kReduceTied) return meet(c, op);
    if (op.kind == OpKind::kSend || op.kind == OpKind::kPostRecv) {
      post(c, op);
    } else if (is_async(op.kind)) {
      Seconds& free = state.lane_free[op.reach];
      const Seconds start = std::max(free, state.now);
      free = start + cost_({c}, op);
      state.done[state.next] = free;
      state.lanes.push_back({static_cast<std::int32_t>(state.next), start, free});
      finish(c, state.now);
    } else {
      finish(c, op.kind == OpKind::kFree ? state.now : state.now + cost_({c}, op));
    }
    return true;
  }

  void finish(int c, Seconds end) {
    CoordState& state = coords_[index(c)];
    state.timeline.push_back({static_cast<std::int32_t>(state.next), state.now, end});
    state.now = end;
    ++state.next;
  }

  bool wait(int c, const Op& op) {
    CoordState& state = coords_[index(c)];
    const Op& target = program_.lists[index(c)][index(op.target)];
    const std::optional<Seconds> done = target.transfer >= 0
                                            ? transfers_[index(target.transfer)].done
                                            : state.done[index(op.target)];
    if (!done) return false;
    const Seconds end = std::max(state.now, *done);
    state.waited += end - state.now;
    finish(c, end);
    return true;
  }

  void post(int c, const Op& op) {
    TransferState& transfer = transfers_[index(op.transfer)];
    CoordState& state = coords_[index(c)];
    (op.kind == OpKind::kSend ? transfer.sent : transfer.received) =
        End{state.now, static_cast<std::int32_t>(state.next)};
    if (op.kind == OpKind::kSend) transfer_cost_[op.transfer] = cost_({c}, op);
    finish(c, state.now);
    if (!transfer.sent || !transfer.received) return;
    const schedule::Transfer& about = program_.transfers[index(op.transfer)];
    Seconds& free = channel_free_[{about.from, about.to}];
    const Seconds start = std::max({free, transfer.sent->posted, transfer.received->posted});
    free = start + transfer_cost_[op.transfer];
    transfer.done = free;
    coords_[index(about.from.value)].lanes.push_back({transfer.sent->op, start, free});
    coords_[index(about.to.value)].lanes.push_back({transfer.received->op, start, free});
    wake(c == about.from.value ? about.to.value : about.from.value);
  }

  // All coordinates that the meeting spans leave it together.
  bool meet(int c, const Op& op) {
    Meeting& meeting = meetings_[op.kind];
    CoordState& state = coords_[index(c)];
    if (std::ranges::find(meeting.arrived, c) != meeting.arrived.end()) return false;
    meeting.arrived.push_back(c);
    meeting.start = std::max(meeting.start, state.now);
    if (static_cast<int>(meeting.arrived.size()) < members(op.kind)) return false;
    for (int member : std::exchange(meeting.arrived, {})) {
      CoordState& other = coords_[index(member)];
      other.waited += meeting.start - other.now;
      finish(member, meeting.start + cost_({member}, op_at(member)));
      wake(member);
    }
    meeting.start = {};
    return true;
  }

  int members(OpKind kind) const {
    const schedule::StepShape& step = program_.step;
    if (kind == OpKind::kNorm) return step.shape.coords;
    return step.coord_of(0) == step.coord_of(step.head()) ? 1 : 2;
  }

  Error stuck(int c) const {
    std::string message;
    for (int other = c; other < static_cast<int>(coords_.size()); ++other) {
      if (coords_[index(other)].next >= program_.lists[index(other)].size()) continue;
      message +=
          join_parts(message.empty() ? "" : "; ", "coordinate ", other, " stands at op ",
                     coords_[index(other)].next, ": ", op_text(program_, {other}, op_at(other)));
    }
    return {Code::kMismatchedCalls, "the program can not finish: " + message, ""};
  }

  const schedule::Program& program_;
  const Cost& cost_;
  std::vector<CoordState> coords_;
  std::set<std::pair<Seconds, int>> runnable_;  // time and coordinate
  std::vector<TransferState> transfers_;
  std::map<int, Seconds> transfer_cost_;
  std::map<std::pair<Coord, Coord>, Seconds> channel_free_;
  std::map<OpKind, Meeting> meetings_;
};

}  // namespace

Result<Simulation> simulate(const schedule::Program& program, const Cost& cost) {
  return Run(program, cost).simulate();
}

}  // namespace lockstep::sim
