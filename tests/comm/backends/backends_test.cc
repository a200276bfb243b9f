#include "lockstep/comm/backends/backends.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/base/check.h"
#include "lockstep/launch/spawn.h"
#include "tests/support/starvation.h"

namespace lockstep::comm {
namespace {

using launch::RankProcesses;

constexpr double kDeadline = 1.0;

// Of the backends that can be used here those that move host memory, by name.
std::vector<std::string> usable() {
  std::vector<std::string> names;
  for (const Backend& backend : backends())
    if (backend.device == DeviceKind::kCpu && backend.check().ok())
      names.emplace_back(backend.name);
  return names;
}

// In a folder beside this program, so that tests/added can have one of its own.
std::string worker() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "workers/backend_worker";
}

// One job of backend_worker processes and what they printed.
class WorkerJob {
 public:
  WorkerJob(int ranks, std::vector<std::string> arguments) : ranks_(ranks), prefix_(make_prefix()) {
    auto started = RankProcesses::start({worker(), std::move(arguments), ranks, {}, prefix_});
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
           ("lockstep_backends_test." + std::to_string(::getpid()) + "." +
            std::to_string(number++) + ".");
  }
  int ranks_;
  std::string prefix_;
  std::optional<RankProcesses> processes_;
};

class BackendContract : public testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(BackendContract, HoldsOnEveryRank) {
  const auto& [backend, ranks] = GetParam();
  WorkerJob job(ranks, {backend, "contract", std::to_string(64 << 20)});
  for (int r = 0; r < ranks; ++r) {
    const auto ending = job.processes().wait(Rank{r}, Deadline::after(Seconds{300}));
    ASSERT_TRUE(ending.has_value()) << "rank " << r << " hangs";
    EXPECT_TRUE(ending->ok()) << "rank " << r << " exit "
                              << ending->exit_code.value_or(-ending->signal);
  }
  std::printf("%s, %d ranks: %s", backend.c_str(), ranks, job.printed(0).c_str());
  EXPECT_NE(job.printed(0).find("cases"), std::string::npos);
}

std::string contract_name(const testing::TestParamInfo<BackendContract::ParamType>& of) {
  return join_parts(std::get<0>(of.param), "_", std::get<1>(of.param));
}

INSTANTIATE_TEST_SUITE_P(Ranks, BackendContract,
                         testing::Combine(testing::ValuesIn(usable()),
                                          testing::Values(1, 2, 3, 4, 8)),
                         contract_name);

TEST(Backends, HaveNamesOfTheirOwnAndAnswerForTheirDevices) {
  EXPECT_FALSE(usable().empty());
  for (const Backend& backend : backends()) {
    EXPECT_EQ(std::ranges::count(backends(), backend.name, &Backend::name), 1) << backend.name;
    ASSERT_NE(backend_for(backend.device), nullptr) << backend.name;
    EXPECT_EQ(backend_for(backend.device)->device, backend.device);
  }
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// What the survivors' times were, in seconds.
struct Times {
  std::vector<double> to_error, to_exit;
};

// What is wrong with what a survivor printed; adds its times.
std::string wrong_of_survivor(const std::string& printed, int victim, bool is_killed,
                              double signalled, double now, Times& times) {
  double at = 0, issued = 0;
  int culprit = -1;
  std::string word, op;
  std::istringstream(printed) >> word >> at >> issued >> culprit >> op;
  const double left = std::atof(printed.c_str() + printed.find("leaving") + 8);
  times.to_error.push_back(is_killed ? at - signalled : at - issued - kDeadline);
  times.to_exit.push_back(now - at);
  if (word != "error" || culprit != victim) return "names another: " + printed;
  if (op != "reduce_scatter" && op != "all_gather") return "names another operation: " + printed;
  if (at - issued > kDeadline + 1.0) return "is told too late: " + printed;
  if (left - at > 1.0) return "leaves too late: " + printed;
  return "";
}

// A victim is signalled in the middle of an all_reduce. Every survivor must be told the victim's
// rank and the operation, in time, and must then be able to leave at once.
std::string wrong_of_victim(const std::string& backend, int ranks, int victim, int signal_number,
                            Times& times) {
  WorkerJob job(ranks, {backend, "victim", std::to_string(kDeadline), std::to_string(victim),
                        std::to_string(signal_number)});
  std::string wrong;
  for (int r = 0; r < ranks; ++r) {
    if (r == victim) continue;
    const auto ending = job.processes().wait(Rank{r}, Deadline::after(Seconds{30}));
    if (!ending.has_value()) return join_parts("rank ", r, " hangs: ", job.printed(r));
    if (!ending->ok())
      wrong = join_parts("rank ", r, " signal ", ending->signal, ": ", job.printed(r));
  }
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  double signalled = 0;
  std::string word;
  std::istringstream(job.printed(victim)) >> word >> signalled;
  for (int r = 0; r < ranks; ++r) {
    if (r == victim) continue;
    const std::string of_rank =
        wrong_of_survivor(job.printed(r), victim, signal_number == SIGKILL, signalled, now, times);
    if (!of_rank.empty()) wrong = join_parts("rank ", r, " ", of_rank);
  }
  return wrong;
}

struct Victim {
  int ranks, rank, signal;
};

class BackendFailure : public testing::TestWithParam<std::tuple<std::string, Victim>> {};

TEST_P(BackendFailure, NamesTheVictimInTime) {
  const auto& [backend, of] = GetParam();
  const auto& [ranks, victim, signal_number] = of;
  const char* trials_text = std::getenv("LOCKSTEP_FAILURE_TRIALS");
  const int trials = trials_text != nullptr ? std::atoi(trials_text) : 1;
  Times times;
  for (int trial = 0; trial < trials; ++trial)
    EXPECT_EQ(
        wrong_unless_starved(
            3, Seconds{0.2},
            [&](int) { return wrong_of_victim(backend, ranks, victim, signal_number, times); }),
        "");
  std::printf(
      "%s, %s of rank %d of %d, %d trials: error %s after p50 %.3f s, worst %.3f s; gone p50 %.3f "
      "s\n",
      backend.c_str(), signal_number == SIGKILL ? "kill" : "stop", victim, ranks, trials,
      signal_number == SIGKILL ? "(from the signal)" : "(from the deadline)",
      median(times.to_error), *std::ranges::max_element(times.to_error), median(times.to_exit));
}

std::string victim_name(const testing::TestParamInfo<BackendFailure::ParamType>& of) {
  const Victim& victim = std::get<1>(of.param);
  return join_parts(std::get<0>(of.param), victim.signal == SIGKILL ? "_kill" : "_stop",
                    victim.rank, "of", victim.ranks);
}

INSTANTIATE_TEST_SUITE_P(
    Victims, BackendFailure,
    testing::Combine(testing::ValuesIn(usable()),
                     testing::Values(Victim{2, 1, SIGKILL}, Victim{2, 0, SIGKILL},
                                     Victim{4, 2, SIGKILL}, Victim{2, 1, SIGSTOP},
                                     Victim{2, 0, SIGSTOP}, Victim{4, 2, SIGSTOP})),
    victim_name);

}  // namespace
}  // namespace lockstep::comm
