#include "lockstep/pipeline/search/hill_climb.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/pipeline/search/lower_bound.h"

namespace lockstep::pipeline {
namespace {

constexpr Seconds kNever = {std::numeric_limits<double>::infinity()};
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
constexpr int kLongestShift = 3;

// A pass with all that timing it takes; passes are numbered, and `source` is the one that makes
// what this one waits for on another stage.
struct ListedPass {
  PassKind kind;
  int stage, microbatch;
  std::size_t id, source;
  Seconds time, hop;  // hop: from the source
};

bool must_keep_order(const ListedPass& a, const ListedPass& b) {
  return a.stage == b.stage && (a.kind == b.kind || a.microbatch == b.microbatch);
}

class Lists {
 public:
  Lists(const Schedule& schedule, const StageProblem& problem)
      : problem_(problem), max_held_(problem.max_held) {
    const auto coords = static_cast<std::size_t>(problem.shape.coords);
    lists_.resize(coords);
    for (std::size_t c = 0; c < coords; ++c)
      for (const Pass& pass : schedule.passes({static_cast<int>(c)})) {
        if (pass.kind != PassKind::kBackward) {
          add(c, pass.kind, pass);
          continue;
        }
        add(c, PassKind::kInputGrad, pass);
        add(c, PassKind::kWeightGrad, pass);
      }
    std::size_t count = 0;
    for (const auto& list : lists_) count += list.size();
    starts_.resize(count), ends_.resize(count), places_.resize(count);
    next_.resize(coords);
  }

  const std::vector<std::vector<ListedPass>>& all() const { return lists_; }
  // Of a pass on the longest chain of the last timing; `index` is taken modulo its length.
  std::pair<std::size_t, std::size_t> critical(std::uint64_t index) const {
    return critical_[index % critical_.size()];
  }

  // Shifts the pass at `from` to `to`, or does nothing and says so if passes of a stage would
  // change order or the pipeline rank would hold too much.
  bool shift(std::size_t coord, std::size_t from, std::size_t to) {
    const std::vector<ListedPass>& list = lists_[coord];
    for (std::size_t at = std::min(from, to); at <= std::max(from, to); ++at)
      if (at != from && must_keep_order(list[at], list[from])) return false;
    rotate(coord, from, to);
    if (most_held(coord) <= max_held_) return true;
    rotate(coord, to, from);
    return false;
  }
  void rotate(std::size_t coord, std::size_t from, std::size_t to) {
    const auto at = [&](std::size_t place) {
      return lists_[coord].begin() + static_cast<std::ptrdiff_t>(place);
    };
    if (from < to)
      std::rotate(at(from), at(from + 1), at(to + 1));
    else
      std::rotate(at(to), at(from), at(from + 1));
  }

  // The makespan; kNever when it is over `limit` or something waits for ever.
  Seconds time(Seconds limit) {
    std::ranges::fill(ends_, kNever);
    std::ranges::fill(next_, 0);
    Seconds makespan;
    std::size_t left = ends_.size();
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t c = 0; c < lists_.size(); ++c) {
        const std::size_t done = advance(c);
        left -= done;
        moved = moved || done > 0;
        if (next_[c] > 0) makespan = std::max(makespan, ends_[lists_[c][next_[c] - 1].id]);
      }
      if (makespan > limit) return kNever;
    }
    return left == 0 ? makespan : kNever;
  }

  // Finds the passes that the makespan of the last timing hangs on, back from the last to end.
  void trace() {
    critical_.clear();
    std::size_t coord = 0;
    for (std::size_t c = 0; c < lists_.size(); ++c)
      if (ends_[lists_[c].back().id] > ends_[lists_[coord].back().id]) coord = c;
    std::size_t place = lists_[coord].size() - 1;
    for (;;) {
      critical_.emplace_back(coord, place);
      const ListedPass& listed = lists_[coord][place];
      const Seconds start = starts_[listed.id];
      if (place > 0 && ends_[lists_[coord][place - 1].id] == start) {
        --place;
      } else if (listed.source != kNone) {
        coord = problem_.coord(listed.stage + (listed.kind == PassKind::kForward ? -1 : 1));
        place = places_[listed.source];
      } else {
        return;
      }
    }
  }

  Timetable timetable() const {
    Timetable passes;
    for (const auto& list : lists_) {
      passes.emplace_back();
      for (const ListedPass& listed : list)
        passes.back().push_back({listed.kind, {listed.stage}, {listed.microbatch}});
    }
    return passes;
  }

 private:
  void add(std::size_t coord, PassKind kind, const Pass& pass) {
    const int stage = pass.stage.value, mb = pass.microbatch.value;
    const int from = kind == PassKind::kForward ? stage - 1 : stage + 1;
    const bool has_source =
        kind != PassKind::kWeightGrad && from >= 0 && from < problem_.shape.stages();
    const auto& costs = kind == PassKind::kForward     ? problem_.costs.forward
                        : kind == PassKind::kInputGrad ? problem_.costs.input_grad
                                                       : problem_.costs.weight_grad;
    lists_[coord].push_back({kind, stage, mb, number(kind, stage, mb),
                             has_source ? number(kind, from, mb) : kNone, costs[stage],
                             has_source ? problem_.hop(stage, from) : Seconds{}});
  }
  std::size_t number(PassKind kind, int stage, int mb) const {
    const int k = kind == PassKind::kForward ? 0 : kind == PassKind::kInputGrad ? 1 : 2;
    return (k * problem_.shape.stages() + stage) * problem_.shape.microbatches + mb;
  }

  int most_held(std::size_t coord) const {
    int held = 0, most = 0;
    for (const ListedPass& listed : lists_[coord]) {
      if (listed.kind == PassKind::kForward) most = std::max(most, ++held);
      if (listed.kind == PassKind::kWeightGrad) --held;
    }
    return most;
  }

  // Runs the pipeline rank as far as it can; how many passes that were.
  std::size_t advance(std::size_t coord) {
    const std::vector<ListedPass>& list = lists_[coord];
    std::size_t at = next_[coord];
    Seconds now = at == 0 ? Seconds{} : ends_[list[at - 1].id];
    for (; at < list.size(); ++at) {
      const ListedPass& listed = list[at];
      if (listed.source != kNone) {
        if (ends_[listed.source] == kNever) break;
        now = std::max(now, ends_[listed.source] + listed.hop);
      }
      starts_[listed.id] = now;
      now += listed.time;
      ends_[listed.id] = now;
      places_[listed.id] = at;
    }
    return at - std::exchange(next_[coord], at);
  }

  const StageProblem& problem_;
  int max_held_;
  std::vector<std::vector<ListedPass>> lists_;  // per pipeline rank
  std::vector<Seconds> starts_, ends_;          // per number
  std::vector<std::size_t> places_;             // per number, in its list
  std::vector<std::size_t> next_;
  std::vector<std::pair<std::size_t, std::size_t>> critical_;
};

}  // namespace

Climb climb(const Schedule& schedule, const StageProblem& problem, int tries) {
  Lists lists(schedule, problem);
  const Seconds start = sim::simulate_stages(schedule, problem.costs).makespan;
  Seconds best = lists.time(kNever);
  LS_CHECK(best <= start, "taking B apart makes a schedule slower");
  const Seconds bound = lower_bound(problem);
  std::mt19937_64 random(1);
  int moves = best < start ? 1 : 0;
  lists.trace();
  for (int i = 0; i < tries && !reaches(best, bound); ++i) {
    auto [coord, from] = lists.critical(random());
    if (random() % 6 == 0) {
      coord = random() % lists.all().size();
      from = random() % lists.all()[coord].size();
    }
    const std::size_t by = 1 + random() % kLongestShift;
    const bool is_later = random() % 2 == 0;
    if (is_later ? from + by >= lists.all()[coord].size() : from < by) continue;
    const std::size_t to = is_later ? from + by : from - by;
    if (!lists.shift(coord, from, to)) continue;
    const Seconds now = lists.time(best);
    if (now > best) {
      lists.rotate(coord, to, from);
      continue;
    }
    moves += now < best ? 1 : 0;
    best = now;
    lists.trace();
  }
  if (moves == 0) return {schedule, 0};
  return {Schedule::create(problem.shape, problem.placement, lists.timetable()).value(), moves};
}

}  // namespace lockstep::pipeline
