#include "lockstep/launch/watch.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

namespace lockstep::launch {
namespace {

Job bash(int ranks, const std::string& script) {
  return {"/bin/bash", {"-c", script}, ranks, {}, ""};
}

class WatchTest : public testing::Test {
 protected:
  Outcome run(const Job& job) {
    auto outcome =
        run_ranks(job, {stop_, times_}, [this](const std::string& text) { told_ += text + "\n"; });
    EXPECT_TRUE(outcome.ok());
    return *outcome;
  }

  std::atomic<bool> stop_ = false;
  std::atomic<int> times_ = 0;
  std::string told_;
};

TEST_F(WatchTest, AllWellIsNoFailure) {
  const Outcome outcome = run(bash(3, "exit 0"));
  EXPECT_FALSE(outcome.failure || outcome.stopped);
}

TEST_F(WatchTest, TheFirstExitCodeCountsAndADeathMore) {
  Outcome outcome = run(bash(3, "test $RANK = 1 && exit 7; sleep 0.2; exit 9"));
  EXPECT_EQ(outcome.failure->rank, 1);
  EXPECT_EQ(outcome.failure->ending.exit_code, 7);
  outcome =
      run(bash(3, "test $RANK = 1 && exit 7; sleep 0.2; test $RANK = 2 && kill -SEGV $$; exit 9"));
  EXPECT_EQ(outcome.failure->rank, 2);
  EXPECT_EQ(outcome.failure->how().substr(0, 36), "was ended by signal 11 (Segmentation");
}

TEST_F(WatchTest, ARankThatDoesNotNoticeIsKilled) {
  const Deadline soon = Deadline::after(Seconds{20});
  const Outcome outcome = run(bash(2, "test $RANK = 0 && kill -9 $$; exec sleep 100"));
  EXPECT_EQ(outcome.failure->rank, 0);
  EXPECT_FALSE(soon.expired());
}

// By the rank itself, or by one that outlives it.
TEST_F(WatchTest, WhatRanksSayOfTheirEndIsKnown) {
  Outcome outcome = run(
      bash(2, "test $RANK = 1 || exit 0; echo 'error 503 it stands' >&$LOCKSTEP_REPORTS; exit 4"));
  EXPECT_EQ(outcome.failure->said->code, Code::kPeerStalled);
  EXPECT_EQ(outcome.failure->said->message, "it stands");
  outcome = run(bash(2,
                     "test $RANK = 1 && kill -9 $$; sleep 0.1; echo 'error 502 rank 1 was at B' "
                     ">&$LOCKSTEP_REPORTS; exit 4"));
  EXPECT_EQ(outcome.failure->rank, 1);
  EXPECT_EQ(outcome.failure->said->message, "rank 1 was at B");
}

TEST_F(WatchTest, ToStopIsPassedOn) {
  const std::string ready = std::filesystem::temp_directory_path() /
                            ("lockstep_watch_test." + std::to_string(::getpid()));
  std::thread asks([&] {
    for (const char* rank : {"0", "1"})
      while (!std::filesystem::exists(ready + rank)) std::this_thread::yield();
    stop_ = true;
  });
  const Outcome outcome = run(
      bash(2, "trap 'exit 143' USR1; touch " + ready + "$RANK; while true; do sleep 0.01; done"));
  asks.join();
  for (const char* rank : {"0", "1"}) std::filesystem::remove(ready + rank);
  EXPECT_TRUE(outcome.stopped);
  EXPECT_FALSE(outcome.failure);
}

TEST_F(WatchTest, ASecondSignalKills) {
  stop_ = true;
  times_ = 2;
  EXPECT_TRUE(run(bash(2, "trap '' USR1; while true; do sleep 0.1; done")).stopped);
}

TEST(Reports, TakesWholeLinesAndPassesOverOthers) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  const std::string text =
      "step 3\nstep -9\nstep 99999999999999999999\nnonsense\nerror\nerror 1\nerror 9999 no\n\n" +
      std::string(9000, 'x') + "\nstep 12\nstep 7\nerror 502 first\nerror 503 second\nstep 4";
  ASSERT_EQ(::write(to, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  to = Descriptor();
  Reports reports;
  reports.read(from);
  EXPECT_EQ(reports.steps(), 12);
  EXPECT_EQ(reports.error()->message, "first");
  EXPECT_TRUE(reports.ended());
}

}  // namespace
}  // namespace lockstep::launch
