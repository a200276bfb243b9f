// Time as a value that can be handed in: a program that asks a Clock runs alike on real and on
// simulated time. Deadline is the one exception, because threads wait on real time only.
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

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;  // never goes backwards
};

// The steady clock of the machine; its origin is its construction. Any thread may read it.
class RealClock final : public Clock {
 public:
  RealClock();
  TimePoint now() const override;
  TimePoint at(SteadyPoint point) const;  // the same moment on this clock
  SteadyPoint origin() const { return origin_; }

 private:
  SteadyPoint origin_;
};

// Stands still until it is told otherwise; starts at zero. One thread at a time.
class VirtualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Seconds by);       // REQUIRES: by >= 0
  void advance_to(TimePoint to);  // REQUIRES: to >= now()

 private:
  TimePoint now_;
};

// The latest moment at which a blocking call may still wait, fixed once and handed down through
// nested calls, so that retries can not stretch it. A value; any thread may use its own copy.
class Deadline {
 public:
  // Already expired for a duration of zero or less; never() for one beyond a century.
  // REQUIRES: `duration` is not NaN.
  static Deadline after(Seconds duration);
  static Deadline at(SteadyPoint point);
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
