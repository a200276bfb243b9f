#include "lockstep/sim/stage_sim.h"

#include <algorithm>
#include <optional>
#include <span>

#include "lockstep/base/check.h"
#include "lockstep/sim/stage_board.h"

namespace lockstep::sim {
namespace {

int most_held(std::span<const pipeline::Pass> passes) {
  int now = 0, most = 0;
  for (const pipeline::Pass& pass : passes)
    if (pass.kind == pipeline::PassKind::kForward)
      most = std::max(most, ++now);
    else if (pass.kind != pipeline::PassKind::kInputGrad)
      --now;
  return most;
}

}  // namespace

StageCosts even_costs(const pipeline::Shape& shape, Seconds forward, Seconds input_grad,
                      Seconds weight_grad, Seconds hop) {
  const auto each = [&](Seconds whole) {
    return std::vector<Seconds>(shape.stages(), {whole.value / shape.chunks});
  };
  return {each(forward), each(input_grad), each(weight_grad), hop};
}

Seconds StageTimes::bubble_without_barrier() const {
  Seconds longest;
  for (const std::vector<TimedPass>& passes : coords)
    longest = std::max(longest, passes.back().end - passes.front().start);
  return longest - work;
}

int StageTimes::max_peak() const { return std::ranges::max(peak); }

StageTimes simulate_stages(const pipeline::Schedule& schedule, const StageCosts& costs) {
  const int coords = schedule.shape().coords;
  StageBoard board(schedule, costs);
  StageTimes times;
  times.coords.resize(coords);
  run_to_the_end(coords, [&](int coord) {
    std::vector<TimedPass>& timed = times.coords[coord];
    const std::span<const pipeline::Pass> passes = schedule.passes({coord});
    if (timed.size() == passes.size()) return false;
    const pipeline::Pass& pass = passes[timed.size()];
    const std::optional<Seconds> ready = board.ready(pass);
    if (!ready) return false;
    const Seconds start = std::max(timed.empty() ? Seconds{} : timed.back().end, *ready);
    timed.push_back({start, start + board.duration(pass)});
    board.finish(pass, timed.back().end);
    return true;
  });
  for (int coord = 0; coord < coords; ++coord) {
    const auto& timed = times.coords[coord];
    const std::span<const pipeline::Pass> passes = schedule.passes({coord});
    LS_CHECK(timed.size() == passes.size(), "pipeline rank ", coord, " stands at ",
             to_text(passes[timed.size()]));
    Seconds work;
    for (const pipeline::Pass& pass : passes) work += board.duration(pass);
    times.work = std::max(times.work, work);
    times.makespan = std::max(times.makespan, timed.back().end);
    times.peak.push_back(most_held(passes));
  }
  return times;
}

}  // namespace lockstep::sim
