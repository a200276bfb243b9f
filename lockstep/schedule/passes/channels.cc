#include "lockstep/schedule/passes/channels.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::schedule {
namespace {

void post_one_early(Channel& channel) {
  std::int32_t latest = channel.hops.back().consumer;
  for (std::size_t i = channel.hops.size(); i-- > 0;) {
    Hop& hop = channel.hops[i];
    hop.post = latest = std::min(latest, std::max(hop.consumer - 1, 0));
  }
}

// Runs all coordinates against each other. When none can move, one of them waits to send; the
// receiver then posts what is on its way, no later than where it now stands itself.
class Rehearsal {
 public:
  Rehearsal(std::vector<Channel>& channels, std::span<const std::int32_t> lengths)
      : channels_(channels), num_sent_(channels.size()) {
    for (const std::int32_t length : lengths)
      actors_.emplace_back().ops.resize(static_cast<std::size_t>(length));
    for (std::size_t channel = 0; channel < channels.size(); ++channel)
      for (std::size_t hop = 0; hop < channels[channel].hops.size(); ++hop) {
        const Hop& row = channels[channel].hops[hop];
        op_of(channels[channel].from, row.producer).sends = {channel, hop};
        op_of(channels[channel].to, row.consumer).receives = {channel, hop};
      }
  }

  void run() {
    while (!is_over())
      if (!advance_all()) unlock_one();
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Place {
    std::size_t channel = kNone;
    std::size_t hop = 0;
  };
  struct ComputeOp {
    Place receives, sends;
  };
  struct Actor {
    std::vector<ComputeOp> ops;
    std::int32_t now = 0;
    bool has_computed = false;  // ops[now] is done but for its Send

    bool is_done() const { return now == static_cast<std::int32_t>(ops.size()); }
    const ComputeOp& op() const { return ops[static_cast<std::size_t>(now)]; }
  };

  Actor& actor(Coord coord) { return actors_[static_cast<std::size_t>(coord.value)]; }
  ComputeOp& op_of(Coord coord, std::int32_t at) {
    return actor(coord).ops[static_cast<std::size_t>(at)];
  }
  bool is_over() const { return std::ranges::all_of(actors_, &Actor::is_done); }

  bool has_arrived(const Place& place) const {
    return place.channel == kNone || num_sent_[place.channel] > place.hop;
  }
  bool may_send(const Place& place) {
    if (place.channel == kNone || place.hop == 0) return true;
    const Channel& channel = channels_[place.channel];
    return channel.hops[place.hop - 1].post <= actor(channel.to).now;
  }

  bool advance_all() {
    bool moved = false;
    for (Actor& actor : actors_)
      while (!actor.is_done() && advance(actor)) moved = true;
    return moved;
  }

  bool advance(Actor& actor) {
    if (!actor.has_computed) return actor.has_computed = has_arrived(actor.op().receives);
    const Place& place = actor.op().sends;
    if (!may_send(place)) return false;
    if (place.channel != kNone) ++num_sent_[place.channel];
    ++actor.now;
    actor.has_computed = false;
    return true;
  }

  void unlock_one() {
    for (const Actor& blocked : actors_) {
      if (!blocked.has_computed) continue;
      const Place& place = blocked.op().sends;
      Channel& channel = channels_[place.channel];
      channel.hops[place.hop - 1].post = actor(channel.to).now;
      return;
    }
    LS_CHECK(false, "compute ops wait for each other in a circle");
  }

  std::vector<Channel>& channels_;
  std::vector<std::size_t> num_sent_;  // per channel
  std::vector<Actor> actors_;          // per coordinate
};

}  // namespace

void place_posts(std::vector<Channel>& channels, std::span<const std::int32_t> lengths) {
  for (Channel& channel : channels) post_one_early(channel);
  Rehearsal(channels, lengths).run();
}

}  // namespace lockstep::schedule
