#include <map>

#include "lockstep/program/passes/channels.h"
#include "lockstep/program/passes/passes.h"

namespace lockstep::program {
namespace {

std::vector<Transfer> all_transfers(const StepShape& step) {
  std::vector<Transfer> transfers;
  for (const bool is_grad : {false, true}) {
    if (is_grad && step.forward_only) continue;
    for (std::size_t stage = 1; stage + 1 < step.stage_begin.size(); ++stage) {
      const std::int32_t unit = step.stage_begin[stage] - 1;
      const Coord lower = step.coord_of(unit), upper = step.coord_of(unit + 1);
      if (lower == upper) continue;
      for (std::int32_t mb = 0; mb < step.shape.microbatches; ++mb)
        transfers.push_back({is_grad, unit, mb, is_grad ? upper : lower, is_grad ? lower : upper});
    }
  }
  return transfers;
}

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
      if (value.kind == ValueKind::kRecvBuffer)
        hops_[static_cast<std::size_t>(value.a)].consumer = at;
    for (const Value& value : effects.defines) {
      const bool is_grad = value.kind == ValueKind::kGrad;
      if (!is_grad && value.kind != ValueKind::kAct) continue;
      const std::int32_t transfer = draft_.program.find_transfer(is_grad, value.a, value.b);
      if (transfer < 0) continue;
      const auto index = static_cast<std::size_t>(transfer);
      hops_[index].transfer = transfer;
      hops_[index].producer = at;
      sent_[coord][draft_.program.transfers[index].to].push_back(index);
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

void attach_ends(const Channel& channel, DraftList& sender, DraftList& receiver) {
  const auto end = [](OpKind kind, const Hop& hop) {
    return Op{.kind = kind, .reach = Reach::kPeer, .transfer = hop.transfer};
  };
  std::int32_t in_flight = -1;
  for (const Hop& hop : channel.hops) {
    if (in_flight >= 0) sender.attach_wait(hop.producer, Slot::kSend, in_flight);
    in_flight = sender.attach(hop.producer, Slot::kSend, end(OpKind::kSend, hop));
    const std::int32_t posted =
        receiver.attach(hop.post, Slot::kPostRecv, end(OpKind::kPostRecv, hop));
    receiver.attach_wait(hop.consumer, Slot::kWaitRecv, posted);
  }
  sender.attach_wait(sender.end(), Slot::kSend, in_flight);
}

}  // namespace

Draft add_transfers(Draft draft) {
  draft.program.transfers = all_transfers(draft.step());
  std::vector<Channel> channels = Scan(draft).channels();
  place_posts(channels, nominal_times(draft));
  for (const Channel& channel : channels)
    attach_ends(channel, draft.lists[static_cast<std::size_t>(channel.from.value)],
                draft.lists[static_cast<std::size_t>(channel.to.value)]);
  return draft;
}

}  // namespace lockstep::program
