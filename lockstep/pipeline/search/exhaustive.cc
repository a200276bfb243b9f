#include "lockstep/pipeline/search/exhaustive.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"

namespace lockstep::pipeline {
namespace {

enum Kind : std::uint8_t { kF, kI, kW };
constexpr PassKind kPassKinds[] = {PassKind::kForward, PassKind::kInputGrad, PassKind::kWeightGrad};

// A pass that can be the next of its pipeline rank.
struct Option {
  std::size_t stage;
  Kind kind;
  Seconds start, end;
};

struct StageState {
  std::array<std::uint8_t, 3> done = {};  // F, I, W
  bool is_barred = false;                 // F is not the next on its pipeline rank
};

struct CoordState {
  Seconds now;
  int held = 0;
};

class Exhaustive {
 public:
  Exhaustive(const StageProblem& problem, Seconds limit, std::int64_t max_visits)
      : problem_(problem),
        costs_{problem.costs.forward, problem.costs.input_grad, problem.costs.weight_grad},
        tail_(chains_of(problem).tail),
        m_(problem.shape.microbatches),
        best_(limit),
        max_visits_(max_visits),
        stages_(tail_.size()),
        coords_(problem.shape.coords),
        ends_(3 * stages_.size() * m_) {
    LS_CHECK(m_ < 256, m_, " microbatches");
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      home_.push_back(problem.coord(static_cast<int>(s)));
      hop_.push_back(s == 0 ? Seconds{}
                            : problem.hop(static_cast<int>(s) - 1, static_cast<int>(s)));
    }
  }

  Search run() {
    visit();
    Search search;
    search.is_complete = visits_ < max_visits_;
    if (best_trail_.empty()) return search;
    Timetable timetable(coords_.size());
    std::vector<std::array<int, 3>> next(stages_.size());
    for (const auto& [stage, kind] : best_trail_)
      timetable[home_[stage]].push_back(
          {kPassKinds[kind], {static_cast<int>(stage)}, {next[stage][kind]++}});
    search.faster =
        Schedule::create(problem_.shape, problem_.placement, std::move(timetable)).value();
    return search;
  }

 private:
  using Key = std::vector<std::uint8_t>;
  using Times = std::vector<Seconds>;

  void visit() {
    if (++visits_ >= max_visits_) return;
    if (trail_.size() == 3 * stages_.size() * m_) {
      best_ = std::ranges::max(coords_, {}, &CoordState::now).now;
      best_trail_ = trail_;
      return;
    }
    if (bound() >= best_ || !is_news()) return;
    const std::vector<Option> options = all_options();
    if (options.empty()) return;
    const Option first = *std::ranges::min_element(options, {}, &Option::end);
    if (!fits_before_any(first)) return try_as_next_or_not(first);
    for (const Option& option : options)
      if (home_[option.stage] == home_[first.stage] &&
          (option.start < first.end || (option.stage == first.stage && option.kind == first.kind)))
        take(option);
  }

  // I before F before W, the deepest first.
  std::vector<Option> all_options() const {
    std::vector<Option> options;
    for (const Kind kind : {kI, kF, kW})
      for (std::size_t s = stages_.size(); s-- > 0;) {
        const std::size_t mb = stages_[s].done[kind];
        const CoordState& coord = coords_[home_[s]];
        if (mb == m_ || (kind != kF && mb == stages_[s].done[kind - 1])) continue;
        if (kind == kF && (stages_[s].is_barred || coord.held == problem_.max_held)) continue;
        Seconds start = coord.now;
        if (const auto from = source(s, kind)) {
          if (mb == stages_[*from].done[kind]) continue;
          start = std::max(start, end(*from, kind, mb) + hop_[std::max(*from, s)]);
        }
        options.push_back({s, kind, start, start + costs_[kind][s]});
      }
    return options;
  }

  // The stage that a pass has its input from.
  std::optional<std::size_t> source(std::size_t stage, Kind kind) const {
    if (kind == kF && stage > 0) return stage - 1;
    if (kind == kI && stage + 1 < stages_.size()) return stage + 1;
    return std::nullopt;
  }

  bool fits_before_any(const Option& option) const {
    if (option.kind != kF || problem_.shape.chunks == 1) return true;
    std::size_t needed = static_cast<std::size_t>(coords_[home_[option.stage]].held);
    for (std::size_t s = 0; s < stages_.size(); ++s)
      if (home_[s] == home_[option.stage]) needed += m_ - stages_[s].done[kF];
    return needed <= static_cast<std::size_t>(problem_.max_held);
  }

  void try_as_next_or_not(const Option& option) {
    take(option);
    stages_[option.stage].is_barred = true;
    visit();
    stages_[option.stage].is_barred = false;
  }

  void take(const Option& option) {
    const std::size_t home = home_[option.stage];
    const CoordState coord = coords_[home];
    const std::vector<StageState> stages = stages_;
    end(option.stage, option.kind, stages_[option.stage].done[option.kind]) = option.end;
    ++stages_[option.stage].done[option.kind];
    for (std::size_t s = 0; s < stages_.size(); ++s)
      if (home_[s] == home) stages_[s].is_barred = false;
    coords_[home].now = option.end;
    coords_[home].held += option.kind == kF ? 1 : option.kind == kW ? -1 : 0;
    trail_.emplace_back(option.stage, option.kind);
    visit();
    trail_.pop_back();
    stages_ = stages;
    coords_[home] = coord;
  }

  // Whether nothing at least as good in every respect was searched. Remembers it if so. What
  // matters of the past: when pipeline ranks are free, and when what is made but not used reaches
  // its user.
  bool is_news() {
    Key key;
    Times times;
    for (const CoordState& coord : coords_) times.push_back(coord.now);
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      key.insert(key.end(), stages_[s].done.begin(), stages_[s].done.end());
      key.push_back(stages_[s].is_barred ? 1 : 0);
      for (const Kind kind : {kF, kI})
        if (const auto from = source(s, kind))
          for (std::size_t mb = stages_[s].done[kind]; mb < stages_[*from].done[kind]; ++mb)
            times.push_back(
                std::max(coords_[home_[s]].now, end(*from, kind, mb) + hop_[std::max(*from, s)]));
    }
    std::vector<Times>& seen = seen_[std::move(key)];
    const auto beats = [](const Times& a, const Times& b) {
      return std::ranges::equal(a, b, std::less_equal<>());
    };
    for (const Times& other : seen)
      if (beats(other, times)) return false;
    std::erase_if(seen, [&](const Times& other) { return beats(times, other); });
    seen.push_back(std::move(times));
    return true;
  }

  // No completion of this state ends sooner: when each pass could start if its pipeline rank had
  // nothing else to do, and then all of a pipeline rank's passes one after the other.
  Seconds bound() {
    std::vector<std::vector<std::pair<Seconds, Seconds>>> todo(coords_.size());  // release, time
    Seconds latest;
    for (const Kind kind : {kF, kI, kW})
      for (std::size_t at = 0; at < stages_.size(); ++at) {
        const std::size_t s = kind == kI ? stages_.size() - 1 - at : at;
        const auto from = source(s, kind);
        Seconds free = coords_[home_[s]].now;
        for (std::size_t mb = stages_[s].done[kind]; mb < m_; ++mb) {
          if (from) free = std::max(free, end(*from, kind, mb) + hop_[std::max(*from, s)]);
          if (kind != kF && mb >= stages_[s].done[kind - 1])
            free = std::max(free, end(s, static_cast<Kind>(kind - 1), mb));
          todo[home_[s]].emplace_back(free, costs_[kind][s]);
          free += costs_[kind][s];
          end(s, kind, mb) = free;
        }
        if (kind == kI && stages_[s].done[kI] < m_) latest = std::max(latest, free + tail_[s]);
      }
    for (std::size_t c = 0; c < coords_.size(); ++c) {
      latest = std::max(latest, coords_[c].now);
      std::ranges::sort(todo[c], std::greater<>());
      Seconds work;
      for (const auto& [from, time] : todo[c]) latest = std::max(latest, from + (work += time));
    }
    return latest;
  }

  Seconds& end(std::size_t stage, Kind kind, std::size_t mb) {
    return ends_[(kind * stages_.size() + stage) * m_ + mb];
  }
  Seconds end(std::size_t stage, Kind kind, std::size_t mb) const {
    return ends_[(kind * stages_.size() + stage) * m_ + mb];
  }

  const StageProblem& problem_;
  std::array<Times, 3> costs_;
  Times tail_;
  std::size_t m_;
  Seconds best_;
  std::int64_t max_visits_, visits_ = 0;
  std::vector<std::size_t> home_;  // pipeline rank of a stage
  Times hop_;                      // between a stage and the one before
  std::vector<StageState> stages_;
  std::vector<CoordState> coords_;
  Times ends_;  // of passes done; of the others, scratch of bound()
  std::vector<std::pair<std::size_t, Kind>> trail_, best_trail_;
  std::map<Key, std::vector<Times>> seen_;
};

}  // namespace

Search search_all(const StageProblem& problem, Seconds limit, std::int64_t max_visits) {
  return Exhaustive(problem, limit, max_visits).run();
}

}  // namespace lockstep::pipeline
