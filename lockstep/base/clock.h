// Points in time and deadlines, on the steady clock of the machine.
#pragma once

#include <chrono>
#include <compare>

#include "lockstep/base/units.h"

namespace lockstep {

// On the machine's own clock, one for all threads.
using SteadyPoint = std::chrono::steady_clock::time_point;

// A point on one clock. Points of two different clocks have nothing to do with each other.
struct TimePoint {
  Seconds since_start;  // since the origin of its clock

  auto operator<=>(const TimePoint&) const = default;
  friend constexpr TimePoint operator+(TimePoint t, Seconds d) { return {t.since_start + d}; }
  friend constexpr TimePoint operator-(TimePoint t, Seconds d) { return {t.since_start - d}; }
  friend constexpr Seconds operator-(TimePoint a, TimePoint b) {
    return a.since_start - b.since_start;
  }
};

// The steady clock of the machine; its origin is its construction. Any thread may read it.
class RealClock {
 public:
  RealClock();
  TimePoint now() const;                  // never goes backwards
  TimePoint at(SteadyPoint point) const;  // the same moment on this clock
  SteadyPoint origin() const { return origin_; }

 private:
  SteadyPoint origin_;
};

// The latest moment at which a blocking call may still wait, fixed once and handed down through
// nested calls, so that retries cannot stretch it. A value; any thread may use its own copy.
class Deadline {
 public:
  // Already expired for a duration of zero or less; never() for one beyond a century.
  // REQUIRES: `duration` is not NaN.
  static Deadline after(Seconds duration);
  static Deadline never();

  Seconds remaining() const;  // at least 0; infinite for never()
  bool expired() const;
  bool is_never() const { return *this == never(); }

  // For std::condition_variable::wait_until and its kin; safe to add to any present-day time.
  SteadyPoint point() const { return point_; }

  auto operator<=>(const Deadline&) const = default;  // the earlier one is the smaller

 private:
  explicit Deadline(SteadyPoint point) : point_(point) {}
  SteadyPoint point_;
};

}  // namespace lockstep
