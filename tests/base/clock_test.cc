#include "lockstep/base/clock.h"

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using std::chrono::steady_clock;

TEST(TimePoint, AddsAndSubtractsSeconds) {
  const TimePoint t{Seconds{2}};
  EXPECT_EQ(t + Seconds{0.5}, TimePoint{Seconds{2.5}});
  EXPECT_EQ((t + Seconds{0.5}) - t, Seconds{0.5});
  EXPECT_LT(t - Seconds{1}, t);
}

TEST(RealClock, FollowsTheSteadyClock) {
  const auto before = steady_clock::now();
  const RealClock clock;
  const TimePoint first = clock.now();
  while (steady_clock::now() - before < std::chrono::microseconds(50)) {
  }
  const TimePoint last = clock.now();
  const std::chrono::duration<double> elapsed = steady_clock::now() - before;
  EXPECT_GE(first, TimePoint{});
  EXPECT_GT(last, first);
  EXPECT_LE(last.since_start.value, elapsed.count());
}

TEST(Deadline, ExpiresOnceItsPointHasPassed) {
  const auto now = steady_clock::now();
  EXPECT_TRUE(Deadline::after(Seconds{0}).expired());
  EXPECT_TRUE(Deadline::after(Seconds{-5}).expired());
  EXPECT_EQ(Deadline::after(Seconds{-5}).remaining(), Seconds{0});

  const Deadline hour = Deadline::after(Seconds{3600});
  EXPECT_FALSE(hour.expired());
  EXPECT_GE(hour.point(), now + std::chrono::hours(1));
  EXPECT_LE(hour.remaining().value, 3600.0);
  EXPECT_GT(hour.remaining().value, 3500.0);
  EXPECT_LT(hour, Deadline::after(Seconds{7200}));
  EXPECT_LT(hour, Deadline::never());
}

TEST(Deadline, NeverIsBeyondEveryDurationAndSafeToConvert) {
  const Deadline never = Deadline::never();
  EXPECT_TRUE(never.is_never());
  EXPECT_FALSE(never.expired());
  EXPECT_TRUE(std::isinf(never.remaining().value));
  EXPECT_EQ(Deadline::after(Seconds{std::numeric_limits<double>::infinity()}), never);
  EXPECT_EQ(Deadline::after(Seconds{1e300}), never);
  EXPECT_FALSE(Deadline::after(Seconds{1e9}).is_never());
  EXPECT_THROW(Deadline::after(Seconds{std::nan("")}), BrokenInvariant);
  // What a library does that waits on the wall clock.
  const auto wall = std::chrono::system_clock::now() + (never.point() - steady_clock::now());
  EXPECT_GT(wall, std::chrono::system_clock::now());
}

TEST(Deadline, EndsAWait) {
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock lock(mutex);
  const Deadline soon = Deadline::after(Seconds{0.001});
  EXPECT_FALSE(changed.wait_until(lock, soon.point(), [] { return false; }));
  EXPECT_TRUE(soon.expired());
}

}  // namespace
}  // namespace lockstep
