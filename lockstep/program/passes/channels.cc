#include "lockstep/program/passes/channels.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::program {
namespace {

// When every compute op ends if transfers take no time and nothing but its input holds it.
class Rehearsal {
 public:
  Rehearsal(const std::vector<Channel>& channels, const NominalTimes& times) : times_(times) {
    for (const auto& list : times) inputs_.emplace_back(list.size());
    for (const Channel& channel : channels)
      for (const Hop& hop : channel.hops)
        inputs_[index(channel.to)][static_cast<std::size_t>(hop.consumer)] = {channel.from.value,
                                                                              hop.producer};
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

  std::int64_t end_of(Coord coord, std::int32_t op) const {
    return ends_[index(coord)][static_cast<std::size_t>(op)];
  }

  // The first op that does not end before; what stands before it is issued earlier than that.
  std::int32_t op_at(Coord coord, std::int64_t time) const {
    const auto& ends = ends_[index(coord)];
    return static_cast<std::int32_t>(std::ranges::lower_bound(ends, time) - ends.begin());
  }

 private:
  struct Input {
    std::int32_t coord = -1;  // -1: nothing is received
    std::int32_t producer = -1;
  };

  static std::size_t index(Coord coord) { return static_cast<std::size_t>(coord.value); }

  bool advance(std::size_t coord) {
    std::vector<std::int64_t>& ends = ends_[coord];
    const std::size_t at = ends.size();
    if (at == times_[coord].size()) return false;
    std::int64_t start = ends.empty() ? 0 : ends.back();
    if (const Input& input = inputs_[coord][at]; input.coord >= 0) {
      const auto& made = ends_[static_cast<std::size_t>(input.coord)];
      const auto producer = static_cast<std::size_t>(input.producer);
      if (producer >= made.size()) return false;
      start = std::max(start, made[producer]);
    }
    ends.push_back(start + times_[coord][at]);
    return true;
  }

  const NominalTimes& times_;
  std::vector<std::vector<Input>> inputs_;       // per coordinate and op
  std::vector<std::vector<std::int64_t>> ends_;  // of the ops done so far
};

}  // namespace

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

}  // namespace lockstep::program
