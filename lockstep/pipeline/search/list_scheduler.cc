#include "lockstep/pipeline/search/list_scheduler.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/sim/stage_board.h"

namespace lockstep::pipeline {
namespace {

struct Start {
  Pass pass;
  Seconds at;
};

class ListScheduler {
 public:
  ListScheduler(const StageProblem& problem, const ListRules& rules)
      : problem_(problem), rules_(rules), board_(problem.shape, problem.placement, problem.costs) {
    coords_.resize(problem.shape.coords);
    for (int stage = 0; stage < problem.shape.stages(); ++stage)
      coords_[problem.coord(stage)].stages.push_back({stage});
    for (std::size_t r = 0; r < coords_.size(); ++r) coords_[r].room = room(static_cast<int>(r));
  }

  Schedule run() {
    const int passes = 3 * problem_.shape.stages() * problem_.shape.microbatches;
    for (int done = 0; done < passes; ++done) {
      CoordState* next = nullptr;
      std::optional<Start> first;
      for (CoordState& coord : coords_)
        if (const auto start = choose(coord); start && (!first || start->at < first->at))
          next = &coord, first = start;
      LS_CHECK(first, "nothing can run after ", done, " of ", passes, " passes");
      start(*next, *first);
    }
    Timetable timetable;
    for (CoordState& coord : coords_) timetable.push_back(std::move(coord.done));
    return Schedule::create(problem_.shape, problem_.placement, std::move(timetable)).value();
  }

 private:
  struct StageState {
    int stage;
    int done[3] = {};  // F, I, W
  };
  struct CoordState {
    std::vector<StageState> stages;  // from the shallowest chunk
    int room = 0, held = 0;
    Seconds now;
    std::vector<Pass> done;
  };

  int room(int coord) const {
    const int chunks = problem_.shape.chunks;
    if (rules_.room == ListRules::Room::kEqual) return problem_.max_held;
    return std::max(chunks, problem_.max_held - coord);
  }

  // What the pipeline rank starts next, of what can start first.
  std::optional<Start> choose(const CoordState& coord) const {
    std::optional<Start> best;
    int best_rank = 0;
    const auto offer = [&](const StageState& state, PassKind kind, int done, int rank) {
      const Pass pass = {kind, {state.stage}, {done}};
      const std::optional<Seconds> ready = board_.ready(pass);
      if (!ready) return;
      const Seconds at = std::max(coord.now, *ready);
      if (best && (best->at < at || (best->at == at && best_rank <= rank))) return;
      best = {pass, at};
      best_rank = rank;
    };
    const int chunks = static_cast<int>(coord.stages.size()), m = problem_.shape.microbatches;
    const bool is_deep = rules_.chunk == ListRules::Chunk::kDeepest;
    const int forward_rank = rules_.first == ListRules::First::kForward ? -chunks : chunks;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const StageState& state = coord.stages[chunk];
      const int deeper = chunks - 1 - chunk;
      const auto [forward, input, weight] = std::to_array(state.done);
      if (input < forward) offer(state, PassKind::kInputGrad, input, chunk);
      if (forward < m && coord.held + deeper < coord.room)
        offer(state, PassKind::kForward, forward, forward_rank + (is_deep ? deeper : chunk));
      if (weight < input) offer(state, PassKind::kWeightGrad, weight, 2 * chunks + deeper);
    }
    return best;
  }

  void start(CoordState& coord, const Start& chosen) {
    const Pass& pass = chosen.pass;
    coord.now = chosen.at + board_.duration(pass);
    board_.finish(pass, coord.now);
    coord.done.push_back(pass);
    const auto state = std::ranges::find(coord.stages, pass.stage.value, &StageState::stage);
    if (pass.kind == PassKind::kForward) ++coord.held, ++state->done[0];
    if (pass.kind == PassKind::kInputGrad) ++state->done[1];
    if (pass.kind == PassKind::kWeightGrad) --coord.held, ++state->done[2];
  }

  const StageProblem& problem_;
  ListRules rules_;
  sim::StageBoard board_;
  std::vector<CoordState> coords_;
};

}  // namespace

Schedule list_schedule(const StageProblem& problem, const ListRules& rules) {
  return ListScheduler(problem, rules).run();
}

}  // namespace lockstep::pipeline
