// Launchers of ranks, and signals: what a person or a scheduler does to one process of a job
// reaches all, none stays behind, and what keeps the job is said. tests/oracles/survivors_test.py
// has the kills.
#include "cli/ranks.h"

#include <gtest/gtest.h>

#if LOCKSTEP_WITH_TORCH
#include <csignal>
#include <filesystem>
#include <thread>

#include "lockstep/base/clock.h"
#include "tests/cli/program.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

// A job of two processes that would train for hours. Whoever does not end when asked is far from
// it: the meeting of ranks takes up to 60 s, a collective up to 600 s.
class RanksSlow : public Binary {
 protected:
  static std::vector<std::string> two_ranks(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"train",
                                      support::source_dir() + "/examples/tiny.toml",
                                      "--mock-data",
                                      "--set",
                                      "train.steps=1000000",
                                      "--set",
                                      "layout.dp=2",
                                      "--processes"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static Deadline soon() { return Deadline::after(Seconds{20}); }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  // As soon as it has started both; empty when it does not.
  static std::vector<int> ranks_of(const Running& job) {
    const Deadline deadline = Deadline::after(Seconds{60});
    while (job.children().size() < 2 && !deadline.expired())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return job.children();
  }
};

TEST_F(RanksSlow, AStoppedRankIsNamedAndKeepsNobodyFromEnding) {
  Running job(two_ranks());
  ASSERT_TRUE(job.wait_for("tokens/s"));
  const std::vector<int> ranks = ranks_of(job);
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGSTOP);
  job.signal(SIGTERM);
  const Ran ran = job.finish(soon());
  EXPECT_EQ(ran.code, 143) << ran.out;
  EXPECT_TRUE(has(ran.out, "rank 1 (process " + std::to_string(ranks[1]) + ") is stopped"))
      << ran.out;
  EXPECT_TRUE(have_ended(ranks));
}

// Long before anybody gives it up; and when it wakes, the job goes on.
TEST_F(RanksSlow, ASilentRankIsToldOfWhileTheJobRuns) {
  Running job(two_ranks());
  ASSERT_TRUE(job.wait_for("tokens/s"));
  const std::vector<int> ranks = ranks_of(job);
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGSTOP);
  EXPECT_TRUE(job.wait_for("lockstep: rank 1 has shown no sign of life for ", soon()));
  ::kill(ranks[1], SIGCONT);
  job.signal(SIGTERM);
  const Ran ran = job.finish(soon());
  EXPECT_EQ(ran.code, 143) << ran.out;
  EXPECT_TRUE(has(ran.out, "\nstopped as asked, after ")) << ran.out;
}

TEST_F(RanksSlow, AHangUpOfTheLauncherSaves) {
  Running job(two_ranks({"--save", (dir_ / "run").string()}));
  ASSERT_TRUE(job.wait_for("tokens/s"));
  const std::vector<int> ranks = ranks_of(job);
  job.signal(SIGHUP);
  const Ran ran = job.finish(soon());
  EXPECT_EQ(ran.code, 143) << ran.out;
  EXPECT_TRUE(std::filesystem::exists(dir_ / "run/latest")) << ran.out;
  EXPECT_TRUE(have_ended(ranks));
}

// When ranks have only just started, and when one of them waits for the other, which is stopped
// then.
TEST_F(RanksSlow, ASignalToTheLauncherAloneEndsAStart) {
  for (const bool waits : {false, true}) {
    Running job(two_ranks());
    const std::vector<int> ranks = ranks_of(job);
    ASSERT_EQ(ranks.size(), 2u);
    if (waits) {
      ::kill(ranks[1], SIGSTOP);
      EXPECT_TRUE(job.wait_for("for 1 of 2 ranks: 1\n", soon()));
    }
    job.signal(SIGINT);
    ::kill(ranks[1], SIGCONT);
    const Ran ran = job.finish(soon());
    EXPECT_EQ(ran.code, 143) << ran.out;
    EXPECT_FALSE(has(ran.out, "frame #")) << ran.out;
    EXPECT_TRUE(have_ended(ranks));
  }
}

}  // namespace
}  // namespace lockstep::cli
#endif
