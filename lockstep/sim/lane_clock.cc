#include "lockstep/sim/lane_clock.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::sim {

void LaneClock::begin(int lane, Seconds work) {
  Lane& state = at(lane);
  LS_CHECK(!state.is_busy && work >= Seconds{}, "work of ", work.value, " s on lane ", lane);
  state.is_busy = true;
  state.is_held = false;
  state.factor = 0;
  state.start = now_;
  state.left = work;
}

void LaneClock::set_factor(int lane, double factor) {
  Lane& state = at(lane);
  LS_CHECK(factor > 0, "factor ", factor, " on lane ", lane);
  if (!state.is_busy || state.is_held || state.factor == factor) return;
  if (state.factor > 0) {
    const Seconds done = (now_ - state.since) * (1 / state.factor);
    state.left = std::max(Seconds{}, state.left - done);
  }
  state.since = now_;
  state.factor = factor;
  expect(lane, now_ + state.left * factor);
}

void LaneClock::hold(int lane, Seconds end) {
  begin(lane, {});
  at(lane).is_held = true;
  expect(lane, std::max(now_, end));
}

bool LaneClock::find_next() {
  while (!ends_.empty() && ends_.top().version != at(ends_.top().lane).version) ends_.pop();
  return !ends_.empty();
}

bool LaneClock::advance() {
  if (!find_next()) return false;
  now_ = ends_.top().time;
  return true;
}

std::optional<int> LaneClock::take_ended() {
  if (!find_next() || ends_.top().time > now_) return std::nullopt;
  const int lane = ends_.top().lane;
  ends_.pop();
  at(lane).is_busy = false;
  return lane;
}

}  // namespace lockstep::sim
