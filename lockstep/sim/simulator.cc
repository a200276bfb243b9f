#include "lockstep/sim/simulator.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/program/effects.h"
#include "lockstep/program/op_table.h"
#include "lockstep/program/text.h"
#include "lockstep/sim/lane_clock.h"

namespace lockstep::sim {
namespace {

using program::CommGroup;
using program::kNumCommGroups;
using program::Op;
using program::OpKind;

// One number per lane: computation of each pipeline rank, then its collectives by group, then
// channels, each of which carries the transfers of one sender to one receiver.
class Lanes {
 public:
  struct Channel {
    Coord from, to;
  };

  explicit Lanes(const program::Program& program)
      : coords_(static_cast<int>(program.lists.size())) {
    std::map<std::pair<Coord, Coord>, int> numbers;
    for (const program::Transfer& transfer : program.transfers) {
      const auto next = static_cast<int>(channels_.size());
      const auto [found, is_new] = numbers.emplace(std::pair(transfer.from, transfer.to), next);
      if (is_new) channels_.push_back({transfer.from, transfer.to});
      channel_of_.push_back(found->second);
    }
  }

  std::size_t size() const {
    return static_cast<std::size_t>(coords_ * (1 + kNumCommGroups)) + channels_.size();
  }
  int collective(int coord, CommGroup group) const {
    return coords_ * (1 + static_cast<int>(group)) + coord;
  }
  int channel(int transfer) const { return coords_ * (1 + kNumCommGroups) + channel_of_[transfer]; }

  bool is_compute(int lane) const { return lane < coords_; }
  bool is_channel(int lane) const { return lane >= coords_ * (1 + kNumCommGroups); }
  // Both ends of a channel; for a collective the pipeline rank twice.
  Channel ends(int lane) const {
    if (!is_channel(lane)) return {{lane % coords_}, {lane % coords_}};
    return channels_[lane - coords_ * (1 + kNumCommGroups)];
  }

 private:
  int coords_;
  std::vector<Channel> channels_;
  std::vector<int> channel_of_;  // per transfer
};

class Run {
 public:
  Run(const program::Program& program, const Cost& cost, const Conditions& conditions)
      : program_(program),
        cost_(cost),
        conditions_(conditions),
        lanes_(program),
        clock_(lanes_.size()),
        queues_(lanes_.size()),
        coords_(program.lists.size()),
        transfers_(program.transfers.size()) {
    for (std::size_t c = 0; c < coords_.size(); ++c) {
      coords_[c].slots.resize(program.lists[c].size());
      coords_[c].has_run.resize(program.lists[c].size());
      coords_[c].timeline.reserve(program.lists[c].size());
    }
  }

  Result<Simulation> simulate() {
    for (int c = 0; c < num_coords(); ++c) advance(c);
    for (settle(); clock_.advance(); settle())
      while (const std::optional<int> lane = clock_.take_ended()) finish(*lane);
    Simulation result;
    for (int c = 0; c < num_coords(); ++c) {
      CoordState& state = at(c);
      if (!has_ended(c)) return stuck(c);
      result.makespan = std::max(result.makespan, state.begun);
      result.coords.push_back(std::move(state.timeline));
      result.waited.push_back(state.waited);
      result.lanes.push_back(std::move(state.lanes));
    }
    return result;
  }

 private:
  static constexpr std::int32_t kNone = -1;

  struct CoordState {
    std::size_t next = 0;  // op at which the list stands
    Seconds begun;         // when it came there
    Seconds waited;
    bool is_computing = false;
    bool is_hosted = false;           // the op's part on its own list goes on, or is over
    Seconds ready;                    // when that began
    bool is_touched = false;          // something began or ended here since settle()
    std::vector<int> talking;         // busy lanes of communication
    std::vector<std::int32_t> slots;  // per asynchronous op: its place in `lanes`
    std::vector<bool> has_run;        // per op, on its lane
    program::Timeline timeline;
    program::Timeline lanes;
  };
  struct TransferState {
    std::int32_t send = kNone, receive = kNone;  // ops, once posted
    bool has_left = false;
    Seconds arrival;
  };
  // Ops or transfers of a lane in the order in which they run.
  struct Queue {
    std::vector<std::int32_t> items;
    std::size_t next = 0;  // under way, or to begin
  };

  int num_coords() const { return static_cast<int>(coords_.size()); }
  CoordState& at(int c) { return coords_[c]; }
  const std::vector<Op>& list(int c) const { return program_.lists[c]; }
  const Op& op_at(int c) const { return list(c)[coords_[c].next]; }
  bool has_ended(int c) const { return coords_[c].next >= list(c).size(); }

  // Issues ops until one takes time or must wait.
  void advance(int c) {
    while (!has_ended(c) && issue(c)) pass(c);
  }

  // The op at which the list stands is over.
  void pass(int c) {
    CoordState& state = at(c);
    if (op_at(c).kind == OpKind::kWait)
      state.waited += (state.is_hosted ? state.ready : clock_.now()) - state.begun;
    state.is_hosted = false;
    state.timeline.push_back({static_cast<std::int32_t>(state.next), state.begun, clock_.now()});
    state.begun = clock_.now();
    ++state.next;
  }

  // Whether the list goes on at once.
  bool issue(int c) {
    const Op& op = op_at(c);
    if (op.kind == OpKind::kFree) return true;
    if (op.kind == OpKind::kWait) return wait(c, op.target) && !begin_host(c);
    if (is_blocking_collective(op.kind)) return arrive(c, op.kind);
    if (is_async(op.kind)) return !begin_host(c) && (enter_lane(c, op), true);
    const Seconds work = cost_({c}, op);
    if (work == Seconds{}) return true;
    clock_.begin(c, work);
    at(c).is_computing = op.group == CommGroup::kNone;
    touch(c);
    return false;
  }

  // Whether the op keeps its own list busy; if so, it does from now on.
  bool begin_host(int c) {
    const Seconds work = conditions_.host ? conditions_.host({c}, op_at(c)) : Seconds{};
    if (work == Seconds{}) return false;
    at(c).is_hosted = true;
    at(c).ready = clock_.now();
    clock_.begin(c, work);
    touch(c);
    return true;
  }

  bool wait(int c, std::int32_t target) {
    const Op& op = list(c)[target];
    if (op.transfer < 0) return at(c).has_run[target];
    const TransferState& transfer = transfers_[op.transfer];
    if (!transfer.has_left) return false;
    if (op.kind == OpKind::kSend || transfer.arrival <= clock_.now()) return true;
    clock_.hold(c, transfer.arrival);
    return false;
  }

  void enter_lane(int c, const Op& op) {
    CoordState& state = at(c);
    const auto number = static_cast<std::int32_t>(state.next);
    state.slots[state.next] = static_cast<std::int32_t>(state.lanes.size());
    state.lanes.push_back({number, {}, {}});
    if (op.transfer < 0) return enqueue(lanes_.collective(c, op.group), number);
    TransferState& transfer = transfers_[op.transfer];
    (op.kind == OpKind::kSend ? transfer.send : transfer.receive) = number;
    if (transfer.send != kNone && transfer.receive != kNone)
      enqueue(lanes_.channel(op.transfer), op.transfer);
  }

  void enqueue(int lane, std::int32_t item) {
    queues_[lane].items.push_back(item);
    if (!clock_.is_busy(lane)) begin_next(lane);
  }

  void begin_next(int lane) {
    const Queue& queue = queues_[lane];
    if (queue.next == queue.items.size()) return;
    const Coord from = lanes_.ends(lane).from;
    const std::int32_t item = queue.items[queue.next];
    const std::int32_t op = lanes_.is_channel(lane) ? transfers_[item].send : item;
    clock_.begin(lane, cost_(from, list(from.value)[op]));
    set_talking(lane, true);
  }

  void set_talking(int lane, bool is_busy) {
    const auto [from, to] = lanes_.ends(lane);
    for (const int c : {from.value, to.value}) {
      std::erase(at(c).talking, lane);
      if (is_busy) at(c).talking.push_back(lane);
      touch(c);
    }
  }

  void finish(int lane) {
    if (lanes_.is_compute(lane)) {
      at(lane).is_computing = false;
      touch(lane);
      if (at(lane).is_hosted && is_async(op_at(lane).kind)) enter_lane(lane, op_at(lane));
      const bool has_arrived = op_at(lane).kind == OpKind::kWait && !at(lane).is_hosted;
      if (has_arrived && begin_host(lane)) return;
      pass(lane);
      return advance(lane);
    }
    const auto [from, to] = lanes_.ends(lane);
    set_talking(lane, false);
    Queue& queue = queues_[lane];
    const std::int32_t item = queue.items[queue.next++];
    if (lanes_.is_channel(lane))
      leave(item, lane);
    else
      note(from.value, item, clock_.start_of(lane), clock_.now());
    begin_next(lane);
    wake(from.value);
    if (to != from) wake(to.value);
  }

  void leave(int number, int lane) {
    TransferState& transfer = transfers_[number];
    const auto [from, to] = lanes_.ends(lane);
    transfer.has_left = true;
    transfer.arrival = clock_.now();
    if (conditions_.latency)
      transfer.arrival += conditions_.latency(from, list(from.value)[transfer.send]);
    note(from.value, transfer.send, clock_.start_of(lane), clock_.now());
    note(to.value, transfer.receive, clock_.start_of(lane), transfer.arrival);
  }

  void note(int c, std::int32_t op, Seconds start, Seconds end) {
    program::TimedOp& timed = at(c).lanes[at(c).slots[op]];
    timed.start = start;
    timed.end = end;
    at(c).has_run[op] = true;
  }

  // Something was done for which the list may stand at a Wait.
  void wake(int c) {
    if (!has_ended(c) && op_at(c).kind == OpKind::kWait && !clock_.is_busy(c)) advance(c);
  }

  // All pipeline ranks that the meeting spans leave it when the last has come and its own cost is
  // over.
  bool arrive(int c, OpKind kind) {
    std::vector<int>& arrived = arrived_[kind == OpKind::kNorm ? 0 : 1];
    arrived.push_back(c);
    if (static_cast<int>(arrived.size()) < members(kind)) return false;
    for (const int member : std::exchange(arrived, {})) {
      at(member).waited += clock_.now() - at(member).begun;
      clock_.hold(member, clock_.now() + cost_({member}, op_at(member)));
    }
    return false;
  }

  int members(OpKind kind) const {
    const program::StepShape& step = program_.step;
    if (kind == OpKind::kNorm) return step.shape.coords;
    return step.coord_of(0) == step.coord_of(step.head()) ? 1 : 2;
  }

  void touch(int c) {
    if (std::exchange(at(c).is_touched, true)) return;
    touched_.push_back(c);
  }

  // Sets the speed of what runs where something changed, once all that happens at one time has.
  void settle() {
    const Slowdown& slowdown = conditions_.slowdown;
    for (const int c : touched_) {
      CoordState& state = at(c);
      state.is_touched = false;
      clock_.set_factor(c, state.is_computing && !state.talking.empty() ? slowdown.compute : 1);
      for (const int lane : state.talking) {
        const auto [from, to] = lanes_.ends(lane);
        const bool is_slow = at(from.value).is_computing || at(to.value).is_computing;
        clock_.set_factor(lane, is_slow ? slowdown.comm : 1);
      }
    }
    touched_.clear();
  }

  Error stuck(int c) const {
    std::string message;
    for (int other = c; other < num_coords(); ++other) {
      if (has_ended(other)) continue;
      message += join_parts(message.empty() ? "" : "; ", "pipeline rank ", other, " stands at op ",
                            coords_[other].next, ": ", op_text(program_, {other}, op_at(other)));
    }
    return {Code::kMismatchedCalls, "the program cannot finish: " + message};
  }

  const program::Program& program_;
  const Cost& cost_;
  const Conditions& conditions_;
  const Lanes lanes_;
  LaneClock clock_;
  std::vector<Queue> queues_;  // per lane
  std::vector<CoordState> coords_;
  std::vector<TransferState> transfers_;
  std::array<std::vector<int>, 2> arrived_;  // at Norm, at the tied reduction
  std::vector<int> touched_;
};

}  // namespace

Result<Simulation> simulate(const program::Program& program, const Cost& cost,
                            const Conditions& conditions) {
  const Slowdown& slowdown = conditions.slowdown;
  for (const auto& [name, factor] :
       {std::pair("compute", slowdown.compute), std::pair("comm", slowdown.comm)})
    if (!(factor >= 1 && factor < std::numeric_limits<double>::infinity()))
      return Error{Code::kOutOfRange,
                   strf("slowdown of %s = %g is not a factor of 1 or more", name, factor),
                   "give 1 for none"};
  return Run(program, cost, conditions).simulate();
}

}  // namespace lockstep::sim
