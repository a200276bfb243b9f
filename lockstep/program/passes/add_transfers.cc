#include <algorithm>
#include <map>

#include "lockstep/base/check.h"
#include "lockstep/program/inventory.h"
#include "lockstep/program/passes/passes.h"

namespace lockstep::program {
namespace {

// One transfer; the places are indices of compute ops.
struct Hop {
  std::int32_t transfer = -1;
  std::int32_t producer = -1;  // in the sender's list
  std::int32_t consumer = -1;  // in the receiver's list
  std::int32_t post = -1;      // in the receiver's list: PostRecv stands before this op
};

// Everything that one pipeline rank sends to another, outputs and gradients alike. At most one
// transfer is in flight: a Send is issued after its producer, once the Send before it is done.
struct Channel {
  Coord from;
  Coord to;
  std::vector<Hop> hops;  // in the sender's order
};

// Per pipeline rank, how long each of its compute ops takes, in any unit; none is below 1.
using NominalTimes = std::vector<std::vector<std::int32_t>>;

// Finds the producer and the consumer of every transfer.
class Scan {
 public:
  explicit Scan(const Draft& draft)
      : draft_(draft), hops_(draft.program.transfers.size()), sent_(draft.lists.size()) {
    for (std::size_t coord = 0; coord < draft.lists.size(); ++coord)
      draft.for_each_compute(
          {static_cast<std::int32_t>(coord)},
          [&](std::int32_t at, const Effects& effects) { note(coord, at, effects); });
  }

  std::vector<Channel> channels() const {
    std::vector<Channel> channels;
    for (std::size_t from = 0; from < sent_.size(); ++from)
      for (const auto& [to, transfers] : sent_[from]) {
        Channel& channel = channels.emplace_back();
        channel.from = {static_cast<std::int32_t>(from)};
        channel.to = to;
        for (const std::size_t transfer : transfers) channel.hops.push_back(hops_[transfer]);
      }
    return channels;
  }

 private:
  void note(std::size_t coord, std::int32_t at, const Effects& effects) {
    for (const Value& value : effects.reads)
      if (value.kind == ValueKind::kRecvBuffer) hops_[value.a].consumer = at;
    for (const Value& value : effects.defines) {
      const bool is_grad = value.kind == ValueKind::kGrad;
      if (!is_grad && value.kind != ValueKind::kAct) continue;
      const std::int32_t transfer = draft_.program.find_transfer(is_grad, value.a, value.b);
      if (transfer < 0) continue;
      hops_[transfer].transfer = transfer;
      hops_[transfer].producer = at;
      sent_[coord][draft_.program.transfers[transfer].to].push_back(transfer);
    }
  }

  const Draft& draft_;
  std::vector<Hop> hops_;                                        // per transfer
  std::vector<std::map<Coord, std::vector<std::size_t>>> sent_;  // per sender, in its order
};

// A backward pass computes two products for each one of the forward pass, so B takes 2.
NominalTimes nominal_times(const Draft& draft) {
  NominalTimes times;
  for (const DraftList& list : draft.lists) {
    std::vector<std::int32_t>& row = times.emplace_back();
    for (const Op& op : list.compute) row.push_back(op.kind == OpKind::kBackward ? 2 : 1);
  }
  return times;
}

// When every compute op ends if transfers take no time and nothing but its input holds it.
class Rehearsal {
 public:
  Rehearsal(const std::vector<Channel>& channels, const NominalTimes& times) : times_(times) {
    for (const auto& list : times) inputs_.emplace_back(list.size());
    for (const Channel& channel : channels)
      for (const Hop& hop : channel.hops)
        inputs_[channel.to.value][hop.consumer] = {channel.from.value, hop.producer};
    ends_.resize(times.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t coord = 0; coord < times.size(); ++coord)
        while (advance(coord)) moved = true;
    }
    for (std::size_t coord = 0; coord < times.size(); ++coord)
      LS_CHECK(ends_[coord].size() == times[coord].size(),
               "compute ops wait for each other in a circle");
  }

  std::int64_t end_of(Coord coord, std::int32_t op) const { return ends_[coord.value][op]; }

  // The first op that does not end before; what stands before it is issued earlier than that.
  std::int32_t op_at(Coord coord, std::int64_t time) const {
    const auto& ends = ends_[coord.value];
    return static_cast<std::int32_t>(std::ranges::lower_bound(ends, time) - ends.begin());
  }

 private:
  struct Input {
    std::int32_t coord = -1;  // -1: nothing is received
    std::int32_t producer = -1;
  };

  bool advance(std::size_t coord) {
    std::vector<std::int64_t>& ends = ends_[coord];
    const std::size_t at = ends.size();
    if (at == times_[coord].size()) return false;
    std::int64_t start = ends.empty() ? 0 : ends.back();
    if (const Input& input = inputs_[coord][at]; input.coord >= 0) {
      const auto& made = ends_[input.coord];
      if (input.producer >= std::ssize(made)) return false;
      start = std::max(start, made[input.producer]);
    }
    ends.push_back(start + times_[coord][at]);
    return true;
  }

  const NominalTimes& times_;
  std::vector<std::vector<Input>> inputs_;       // per pipeline rank and op
  std::vector<std::vector<std::int64_t>> ends_;  // of the ops done so far
};

// Sets every Hop::post, in the sender's order: where the receiver stands when the Send before
// leaves (the first: when it leaves itself), if all took their nominal times and transfers none; at
// the latest one compute op before the consumer. So in those times no sender waits, and a transfer
// may last as long as the sender computes between two Sends. Other times may make senders wait,
// never in a circle: the rehearsal is a run that ends, and where one ends all do (deadlock.h). The
// price is the buffer, which the receiver holds from there on.
// REQUIRES: the compute ops can run in the given orders if sending takes no time and never waits.
void place_posts(std::vector<Channel>& channels, const NominalTimes& times) {
  const Rehearsal rehearsal(channels, times);
  for (Channel& channel : channels) {
    std::int32_t latest = channel.hops.back().consumer;
    for (std::size_t i = channel.hops.size(); i-- > 0;) {
      Hop& hop = channel.hops[i];
      const Hop& before = channel.hops[i == 0 ? 0 : i - 1];
      const std::int64_t leaves = rehearsal.end_of(channel.from, before.producer);
      latest =
          std::min({latest, std::max(hop.consumer - 1, 0), rehearsal.op_at(channel.to, leaves)});
      hop.post = latest;
    }
  }
}

void attach_ends(const Channel& channel, DraftList& sender, DraftList& receiver) {
  const auto end = [](OpKind kind, const Hop& hop) {
    return Op{.kind = kind, .group = CommGroup::kPeer, .transfer = hop.transfer};
  };
  std::int32_t in_flight = -1;
  for (const Hop& hop : channel.hops) {
    if (in_flight >= 0) sender.attach_wait(hop.producer, Slot::kSend, in_flight);
    in_flight = sender.attach(hop.producer, Slot::kSend, end(OpKind::kSend, hop));
    const auto posted = receiver.attach(hop.post, Slot::kPostRecv, end(OpKind::kPostRecv, hop));
    receiver.attach_wait(hop.consumer, Slot::kWaitRecv, posted);
  }
  sender.attach_wait(sender.end(), Slot::kSend, in_flight);
}

}  // namespace

Draft add_transfers(Draft draft) {
  draft.program.transfers = usual_transfers(draft.step());
  std::vector<Channel> channels = Scan(draft).channels();
  place_posts(channels, nominal_times(draft));
  for (const Channel& channel : channels)
    attach_ends(channel, draft.lists[channel.from.value], draft.lists[channel.to.value]);
  return draft;
}

}  // namespace lockstep::program
