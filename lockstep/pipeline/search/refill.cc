#include "lockstep/pipeline/search/refill.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/sim/stage_board.h"

namespace lockstep::pipeline {
namespace {

// Twentieths of a W's time that a gap must have.
constexpr int kShares[] = {1, 5, 10, 15, 20};

class Refill {
 public:
  Refill(const Schedule& schedule, const sim::StageCosts& costs, int max_held, int share)
      : board_(schedule, costs), max_held_(max_held), share_(share) {
    for (int coord = 0; coord < schedule.shape().coords; ++coord) {
      State& state = states_.emplace_back();
      for (Pass pass : schedule.passes({coord})) {
        if (pass.kind == PassKind::kWeightGrad) continue;
        if (pass.kind == PassKind::kBackward) pass.kind = PassKind::kInputGrad;
        state.order.push_back(pass);
        if (pass.kind == PassKind::kForward) continue;
        pass.kind = PassKind::kWeightGrad;
        state.weights.push_back(pass);
      }
    }
  }

  // How long a step then takes.
  Result<Seconds> run() {
    sim::run_to_the_end(static_cast<int>(states_.size()),
                        [&](int coord) { return advance(coord); });
    if (too_small_) return *too_small_;
    Seconds makespan;
    for (State& state : states_) {
      LS_CHECK(state.next == state.order.size(), "stands at ", to_text(state.order[state.next]));
      while (state.held > 0) run_weight(state);
      makespan = std::max(makespan, state.now);
    }
    return makespan;
  }

  Timetable take() {
    Timetable timetable;
    for (State& state : states_) timetable.push_back(std::move(state.done));
    return timetable;
  }

 private:
  struct State {
    std::vector<Pass> order;    // F and I
    std::vector<Pass> weights;  // W in the order of I
    std::size_t next = 0, next_weight = 0;
    std::size_t num_inputs = 0;  // I done
    int held = 0;
    Seconds now;
    std::vector<Pass> done;
  };
  static constexpr int kWhole = 20;

  bool advance(int coord) {
    State& state = states_[coord];
    if (state.next == state.order.size() || too_small_) return false;
    const Pass& pass = state.order[state.next];
    const std::optional<Seconds> ready = board_.ready(pass);
    if (!ready) return false;
    const bool is_forward = pass.kind == PassKind::kForward;
    while (has_weight(state) && (fits(state, *ready) || (is_forward && state.held == max_held_)))
      run_weight(state);
    if (is_forward && state.held >= max_held_) {
      too_small_ = Error{
          Code::kOutOfRange,
          join_parts("pass ", to_text(pass), " of pipeline rank ", coord, " does not fit into ",
                     max_held_, " stage activations: none of those held can be freed before"),
          "allow more, or choose a schedule that holds less"};
      return false;
    }
    state.now = std::max(state.now, *ready) + board_.duration(pass);
    board_.finish(pass, state.now);
    state.done.push_back(pass);
    ++state.next;
    if (is_forward)
      ++state.held;
    else
      ++state.num_inputs;
    return true;
  }

  static bool has_weight(const State& state) { return state.next_weight < state.num_inputs; }

  bool fits(const State& state, Seconds ready) const {
    const Seconds gap = ready - state.now;
    return gap > Seconds{} &&
           gap * kWhole >= board_.duration(state.weights[state.next_weight]) * share_;
  }

  void run_weight(State& state) {
    const Pass& pass = state.weights[state.next_weight++];
    state.now += board_.duration(pass);
    state.done.push_back(pass);
    --state.held;
  }

  sim::StageBoard board_;
  int max_held_;
  int share_;
  std::vector<State> states_;  // per pipeline rank
  std::optional<Error> too_small_;
};

}  // namespace

Result<Schedule> refill(const Schedule& schedule, const sim::StageCosts& costs, int max_held) {
  const sim::StageTimes before = sim::simulate_stages(schedule, costs);
  std::optional<Seconds> best;
  if (before.max_peak() <= max_held) best = before.makespan;
  Timetable timetable;  // of the best; empty: as it was
  for (const int share : kShares) {
    Refill candidate(schedule, costs, max_held, share);
    const Seconds makespan = LS_TRY(candidate.run());
    if (best && makespan >= *best) continue;
    best = makespan;
    timetable = candidate.take();
  }
  if (timetable.empty()) return schedule;
  return Schedule::create(schedule.shape(), schedule.placement(), std::move(timetable));
}

}  // namespace lockstep::pipeline
