#include "lockstep/comm/gloo/world.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/launch/spawn.h"

namespace lockstep::comm {
namespace {

using launch::RankProcesses;

constexpr double kDeadline = 1.0;

// One job of gloo_worker processes and what they printed.
class WorkerJob {
 public:
  WorkerJob(int ranks, std::vector<std::string> arguments) : ranks_(ranks), prefix_(make_prefix()) {
    auto started = RankProcesses::start({std::string(LOCKSTEP_WORKER_DIR) + "/gloo_worker",
                                         std::move(arguments),
                                         ranks,
                                         {},
                                         prefix_});
    if (!started.ok()) throw std::runtime_error(started.error().message);
    processes_.emplace(std::move(*started));
  }
  ~WorkerJob() {
    processes_.reset();
    for (int r = 0; r < ranks_; ++r) std::filesystem::remove(prefix_ + std::to_string(r));
  }
  RankProcesses& processes() { return *processes_; }
  std::string printed(int rank) const {
    std::ifstream file(prefix_ + std::to_string(rank));
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  static std::string make_prefix() {
    static int number = 0;
    return std::filesystem::temp_directory_path() /
           ("lockstep_gloo_test." + std::to_string(::getpid()) + "." + std::to_string(number++) +
            ".");
  }
  int ranks_;
  std::string prefix_;
  std::optional<RankProcesses> processes_;
};

class GlooContract : public testing::TestWithParam<int> {};

TEST_P(GlooContract, HoldsOnEveryRank) {
  WorkerJob job(GetParam(), {"contract", std::to_string(64 << 20)});
  for (int r = 0; r < GetParam(); ++r) {
    const auto ending = job.processes().wait(Rank{r}, Deadline::after(Seconds{300}));
    ASSERT_TRUE(ending.has_value()) << "rank " << r << " hangs";
    EXPECT_TRUE(ending->ok()) << "rank " << r << " exit "
                              << ending->exit_code.value_or(-ending->signal);
  }
  std::printf("gloo, %d ranks: %s", GetParam(), job.printed(0).c_str());
  EXPECT_NE(job.printed(0).find("cases"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Ranks, GlooContract, testing::Values(1, 2, 3, 4, 8));

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// A victim is signalled in the middle of an all_reduce. Every survivor must be told the victim's
// rank and the operation, in time, and must then be able to leave at once.
class GlooFailure : public testing::TestWithParam<std::tuple<int, int, int>> {
};  // ranks, victim, signal

TEST_P(GlooFailure, NamesTheVictimInTime) {
  const auto [ranks, victim, signal_number] = GetParam();
  const char* trials_text = std::getenv("LOCKSTEP_FAILURE_TRIALS");
  const int trials = trials_text != nullptr ? std::atoi(trials_text) : 1;
  std::vector<double> to_error, to_exit;
  for (int trial = 0; trial < trials; ++trial) {
    WorkerJob job(ranks, {"victim", std::to_string(kDeadline), std::to_string(victim),
                          std::to_string(signal_number)});
    for (int r = 0; r < ranks; ++r) {
      if (r == victim) continue;
      const auto ending = job.processes().wait(Rank{r}, Deadline::after(Seconds{30}));
      ASSERT_TRUE(ending.has_value()) << "rank " << r << " hangs: " << job.printed(r);
      EXPECT_TRUE(ending->ok()) << "rank " << r << " signal " << ending->signal << ": "
                                << job.printed(r);
    }
    const double now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    double signalled = 0;
    std::string word;
    std::istringstream(job.printed(victim)) >> word >> signalled;
    for (int r = 0; r < ranks; ++r) {
      if (r == victim) continue;
      double at = 0, issued = 0;
      int culprit = -1;
      std::string op;
      std::istringstream(job.printed(r)) >> word >> at >> issued >> culprit >> op;
      EXPECT_EQ(word, "error");
      EXPECT_EQ(culprit, victim) << job.printed(r);
      EXPECT_TRUE(op == "reduce_scatter" || op == "all_gather") << job.printed(r);
      EXPECT_LE(at - issued, kDeadline + 1.0) << job.printed(r);
      to_error.push_back(signal_number == SIGKILL ? at - signalled : at - issued - kDeadline);
      const std::string text = job.printed(r);
      const double left = std::atof(text.c_str() + text.find("leaving") + 8);
      EXPECT_LE(left - at, 1.0) << text;
      to_exit.push_back(now - at);
    }
  }
  std::printf(
      "%s of rank %d of %d, %d trials: error %s after p50 %.3f s, worst %.3f s; process gone p50 "
      "%.3f s\n",
      signal_number == SIGKILL ? "kill" : "stop", victim, ranks, trials,
      signal_number == SIGKILL ? "(from the signal)" : "(from the deadline)", median(to_error),
      *std::ranges::max_element(to_error), median(to_exit));
}

INSTANTIATE_TEST_SUITE_P(Victims, GlooFailure,
                         testing::Values(std::tuple(2, 1, SIGKILL), std::tuple(2, 0, SIGKILL),
                                         std::tuple(4, 2, SIGKILL), std::tuple(2, 1, SIGSTOP),
                                         std::tuple(2, 0, SIGSTOP), std::tuple(4, 2, SIGSTOP)));

}  // namespace
}  // namespace lockstep::comm
