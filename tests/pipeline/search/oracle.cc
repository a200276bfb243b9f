#include "tests/pipeline/search/oracle.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <unordered_map>

namespace lockstep::pipeline {
namespace {

constexpr int kMostStages = 6, kMostMicrobatches = 4, kMostCoords = 4;

struct Moment {
  std::int16_t done[3][kMostStages] = {};  // F, I, W of each stage
  std::int16_t held[kMostCoords] = {};
  std::int16_t made[2][kMostStages][kMostMicrobatches] = {};  // when the user of F or I has it
  std::int16_t free[kMostCoords] = {};                        // when the coordinate is
};
static_assert(std::has_unique_object_representations_v<Moment>);

class Oracle {
 public:
  Oracle(const StageProblem& problem, int limit)
      : stages_(problem.shape.stages()),
        coords_(problem.shape.coords),
        m_(problem.shape.microbatches),
        room_(problem.max_held),
        limit_(limit) {
    for (int s = 0; s < stages_; ++s) {
      const auto at = static_cast<std::size_t>(s);
      cost_[0][s] = static_cast<int>(problem.costs.forward[at].value);
      cost_[1][s] = static_cast<int>(problem.costs.input_grad[at].value);
      cost_[2][s] = static_cast<int>(problem.costs.weight_grad[at].value);
      const bool is_mirrored = problem.placement == pipeline::Placement::kV && s / coords_ % 2 == 1;
      home_[s] = is_mirrored ? coords_ - 1 - s % coords_ : s % coords_;
    }
    for (int s = 0; s + 1 < stages_; ++s)
      hop_[s] = home_[s] == home_[s + 1] ? 0 : static_cast<int>(problem.costs.hop.value);
    for (int s = 0; s < stages_; ++s)
      down_[s] =
          s == 0 ? 0 : hop_[s - 1] + cost_[1][s - 1] + std::max(down_[s - 1], cost_[2][s - 1]);
    for (int s = stages_ - 1; s > 0; --s)
      away_[s - 1] = 2 * hop_[s - 1] + cost_[0][s] + away_[s] + cost_[1][s];
  }

  bool live(const Moment& now) {
    int c = -1;
    for (int other = 0; other < coords_; ++other)
      if (left(now, other) > 0 && (c < 0 || now.free[other] < now.free[c])) c = other;
    if (c < 0) return true;
    if (is_hopeless(now) || is_known(now, now.free[c])) return false;
    for (int s = 0; s < stages_; ++s)
      for (int kind = 0; kind < 3; ++kind)
        if (home_[s] == c && can_start(now, s, kind) && live(after(now, s, kind))) return true;
    Moment later = now;
    ++later.free[c];
    return live(later);
  }

 private:
  // Time of the passes to come.
  int left(const Moment& now, int coord, int kind) const {
    int time = 0;
    for (int s = 0; s < stages_; ++s)
      if (home_[s] == coord) time += (m_ - now.done[kind][s]) * cost_[kind][s];
    return time;
  }
  int left(const Moment& now, int coord) const {
    int count = 0;
    for (int s = 0; s < stages_; ++s)
      if (home_[s] == coord) count += m_ - now.done[2][s];
    return count;
  }

  // All passes of a coordinate come one after the other; the last I of a stage, and the last F,
  // have their way to go.
  bool is_hopeless(const Moment& now) const {
    for (int c = 0; c < coords_; ++c)
      if (now.free[c] + left(now, c, 0) + left(now, c, 1) + left(now, c, 2) > limit_) return true;
    for (int s = 0; s < stages_; ++s) {
      const int c = home_[s], tail = std::max(down_[s], cost_[2][s]);
      const int inputs = (m_ - now.done[1][s]) * cost_[1][s];
      const int forwards = (m_ - now.done[0][s]) * cost_[0][s];
      if (inputs > 0 && now.free[c] + inputs + forwards + tail > limit_) return true;
      if (forwards > 0 && now.free[c] + forwards + away_[s] + cost_[1][s] + tail > limit_)
        return true;
    }
    return false;
  }

  // The same moment, as early or earlier, has led nowhere.
  bool is_known(const Moment& now, int time) {
    Moment same = now;  // counted from now, without what is past
    for (int kind = 0; kind < 2; ++kind)
      for (int s = 0; s < stages_; ++s) {
        const int user = kind == 0 ? s + 1 : s - 1;
        const int used = user < 0 || user == stages_ ? m_ : now.done[kind][user];
        for (int mb = 0; mb < m_; ++mb) {
          std::int16_t& made = same.made[kind][s][mb];
          made = static_cast<std::int16_t>(mb < used ? 0 : std::max(0, made - time));
        }
      }
    for (std::int16_t& free : same.free) free = static_cast<std::int16_t>(std::max(0, free - time));
    const std::string key(reinterpret_cast<const char*>(&same), sizeof(same));
    const auto [known, is_new] = known_.try_emplace(key, time);
    if (is_new || time < known->second) return known->second = time, false;
    return true;
  }

  bool can_start(const Moment& now, int s, int kind) const {
    const int mb = now.done[kind][s], time = now.free[home_[s]];
    if (mb == m_ || (kind > 0 && now.done[kind - 1][s] == mb)) return false;
    if (kind == 0 && now.held[home_[s]] == room_) return false;
    const int from = kind == 0 ? s - 1 : s + 1;
    if (kind == 2 || from < 0 || from == stages_) return true;
    return now.done[kind][from] > mb && now.made[kind][from][mb] <= time;
  }

  Moment after(const Moment& now, int s, int kind) const {
    Moment next = now;
    const int c = home_[s], mb = next.done[kind][s]++;
    next.free[c] = static_cast<std::int16_t>(next.free[c] + cost_[kind][s]);
    if (kind == 0) ++next.held[c];
    if (kind == 2) --next.held[c];
    const int boundary = kind == 0 ? s : s - 1;
    if (kind < 2 && boundary >= 0 && boundary + 1 < stages_)
      next.made[kind][s][mb] = static_cast<std::int16_t>(next.free[c] + hop_[boundary]);
    return next;
  }

  int stages_, coords_, m_, room_, limit_;
  int cost_[3][kMostStages] = {}, home_[kMostStages] = {}, hop_[kMostStages] = {};
  int down_[kMostStages] = {};  // from the end of I to the end of the step, below
  int away_[kMostStages] = {};  // from the end of F to the start of I
  std::unordered_map<std::string, int> known_;
};

}  // namespace

bool exists_within(const StageProblem& problem, int limit) {
  return Oracle(problem, limit).live({});
}

}  // namespace lockstep::pipeline
