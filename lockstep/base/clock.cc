#include "lockstep/base/clock.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/check.h"

namespace lockstep {
namespace {

using std::chrono::steady_clock;

// Half the range, about 146 years: some waits convert between clocks, and time_point::max() would
// overflow there.
constexpr steady_clock::time_point kNever{steady_clock::duration::max() / 2};
constexpr double kCentury = 100.0 * 366 * 86400;

Seconds to_seconds(steady_clock::duration d) { return {std::chrono::duration<double>(d).count()}; }

}  // namespace

RealClock::RealClock() : origin_(steady_clock::now()) {}

TimePoint RealClock::now() const { return at(steady_clock::now()); }

TimePoint RealClock::at(SteadyPoint point) const { return {to_seconds(point - origin_)}; }

Deadline Deadline::after(Seconds duration) {
  LS_CHECK(!std::isnan(duration.value));
  if (duration.value > kCentury) return never();
  const std::chrono::duration<double> wait(std::max(duration.value, 0.0));
  return Deadline(steady_clock::now() + std::chrono::ceil<steady_clock::duration>(wait));
}

Deadline Deadline::never() { return Deadline(kNever); }

Seconds Deadline::remaining() const {
  if (is_never()) return {std::numeric_limits<double>::infinity()};
  return std::max(Seconds{0}, to_seconds(point_ - steady_clock::now()));
}

bool Deadline::expired() const { return !is_never() && steady_clock::now() >= point_; }

}  // namespace lockstep
