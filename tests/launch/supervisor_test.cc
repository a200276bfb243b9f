// Launchers as they run, with shell scripts for ranks; those of several hosts are threads of this
// process and meet on loopback.
#include "lockstep/launch/supervisor.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/comm/address.h"
#include "lockstep/launch/channel.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

std::uint16_t free_port() {
  const Descriptor socket(comm::listen_at("127.0.0.1", 0));
  return comm::port_of(socket);
}

class SupervisorTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("lockstep_supervisor_test." + std::to_string(::getpid()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    ::setenv(kSecret, "for launchers alone", 1);
  }
  void TearDown() override {
    ::unsetenv(kSecret);
    fs::remove_all(dir_);
  }

  // Two ranks for each host. The script has $1: the times a host was told to start again.
  HostJob job(int host, int hosts, const std::string& script) {
    HostJob made;
    made.host = {host, hosts, "127.0.0.1", port_, "test"};
    made.ranks = 2;
    made.policy = {hosts, 2 * hosts, 5, {20}, "127.0.0.1", {0.01}, [] { return std::int64_t{-1}; }};
    made.secret = "of this test";
    made.program = "/bin/bash";
    made.words = [this, script](bool restarts, bool) {
      return std::vector<std::string>{"-c", "cd " + dir_.string() + "; " + script, "rank",
                                      restarts ? "again" : "first"};
    };
    return made;
  }
  std::future<Verdict> start(HostJob job) {
    return std::async(std::launch::async, [this, job = std::move(job)] {
      return run_host(job, {stop_, times_}, [this](const std::string& text) {
        const std::lock_guard lock(mutex_);
        told_ += text + "\n";
      });
    });
  }
  std::string told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  void await(const std::string& file) const {
    const Deadline deadline = Deadline::after(Seconds{20});
    while (!fs::exists(dir_ / file) && !deadline.expired()) std::this_thread::yield();
  }
  std::set<std::string> lines(const std::string& file) const {
    std::ifstream in(dir_ / file);
    std::set<std::string> found;
    for (std::string line; std::getline(in, line);) found.insert(line);
    return found;
  }

  const std::uint16_t port_ = free_port();
  std::atomic<bool> stop_ = false;
  std::atomic<int> times_ = 0;
  fs::path dir_;
  std::mutex mutex_;
  std::string told_;
};

TEST_F(SupervisorTest, AJobThatFailsOnceIsStartedAgain) {
  const Verdict verdict =
      start(job(0, 1, "test $1$RANK = first1 && kill -9 $$; test $1 = again || exec sleep 100"))
          .get();
  EXPECT_EQ(verdict.exit_code, 0);
  EXPECT_NE(
      told().find("was ended by signal 9 (Killed); restart 1 of at most 5, from the beginning"),
      std::string::npos)
      << told();
}

TEST_F(SupervisorTest, ARankThatStaysStoppedIsKilledAndTheJobStartedAgain) {
  const Deadline soon = Deadline::after(Seconds{20});
  const Verdict verdict =
      start(job(0, 1, "test $1$RANK = first1 && kill -STOP $$; test $1 = again || exec sleep 100"))
          .get();
  EXPECT_EQ(verdict.exit_code, 0);
  EXPECT_NE(told().find("rank 1 on "), std::string::npos) << told();
  EXPECT_NE(told().find(") was stopped for 2."), std::string::npos) << told();
  EXPECT_NE(told().find(", and was killed; restart 1 of"), std::string::npos) << told();
  EXPECT_FALSE(soon.expired());
}

TEST_F(SupervisorTest, AnExitCodeThatWouldComeAgainIsTheJobs) {
  const Verdict verdict = start(job(0, 1, "test $RANK = 0 && exit 2; exec sleep 100")).get();
  EXPECT_EQ(verdict.exit_code, 2);
  EXPECT_NE(verdict.error->message.find("rank 0 on "), std::string::npos);
}

// All ranks of a start have one port, and those of the next another.
TEST_F(SupervisorTest, HostsStartTogetherUnderAnotherPortEachTime) {
  const std::string script =
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE >>places; echo $MASTER_PORT >>$1; "
      "test -z $LOCKSTEP_LAUNCH_SECRET || exit 3; test $1 = again || exec sleep 100";
  auto first = start(job(0, 2, script));
  auto second = start(job(1, 2, "test $1$RANK = first3 && { sleep 0.2; kill -9 $$; }; " + script));
  EXPECT_EQ(first.get().exit_code, 0);
  EXPECT_EQ(second.get().exit_code, 0);
  EXPECT_EQ(lines("places"), (std::set<std::string>{"0 4 0 2", "1 4 1 2", "2 4 0 2", "3 4 1 2"}));
  EXPECT_EQ(lines("first").size(), 1u);
  EXPECT_EQ(lines("again").size(), 1u);
  EXPECT_NE(lines("first"), lines("again"));
}

TEST_F(SupervisorTest, ToStopReachesTheOtherHostAndIsNoFailure) {
  const std::string script = "trap 'exit 143' USR1; touch $RANK; while true; do sleep 0.01; done";
  auto first = start(job(0, 2, script)), second = start(job(1, 2, script));
  for (const char* rank : {"0", "1", "2", "3"}) await(rank);
  stop_ = true;
  for (auto* each : {&first, &second}) {
    const Verdict verdict = each->get();
    EXPECT_EQ(verdict.exit_code, 143);
    EXPECT_FALSE(verdict.error);
  }
}

TEST_F(SupervisorTest, StrangersGarbageAndAnotherSecretChangeNothing) {
  const std::string script = "touch $RANK; until test -e end; do sleep 0.01; done";
  auto first = start(job(0, 2, script)), second = start(job(1, 2, script));
  await("3");
  HostJob wrong = job(1, 2, script), twice = wrong, other = wrong;
  wrong.secret = "of another";
  other.host.job = "other";
  auto refused = start(wrong);
  std::mt19937 dice(1);
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 1000; ++i) {
    strangers.emplace_back(comm::connect_to("127.0.0.1", port_, Deadline::after(Seconds{10})));
    std::string noise(dice() % 300, '\0');
    for (char& c : noise) c = static_cast<char>(dice());
    if (i % 3 == 0) noise = "lockstep.launch/1 0123456789abcdef0123456789abcdef\n" + noise + "\n";
    (void)!::send(strangers.back(), noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (strangers.size() > 200) strangers.erase(strangers.begin());
  }
  EXPECT_EQ(refused.get().error->code, Code::kMismatchedCalls);
  EXPECT_NE(start(twice).get().error->message.find("is here already"), std::string::npos);
  EXPECT_NE(start(other).get().error->message.find("is of the job `other`"), std::string::npos);
  std::ofstream(dir_ / "end") << "end";
  EXPECT_EQ(first.get().exit_code, 0);
  EXPECT_EQ(second.get().exit_code, 0);
  EXPECT_NE(told().find("somebody came to the coordinator who "), std::string::npos);
}

TEST_F(SupervisorTest, AHostThatStaysAwayIsNamed) {
  HostJob alone = job(0, 2, "exit 0");
  alone.policy.wait = {0.1};
  const Verdict verdict = start(alone).get();
  EXPECT_EQ(verdict.exit_code, 4);
  EXPECT_NE(verdict.error->message.find("1 of 2 hosts: 1"), std::string::npos);
  HostJob other = job(1, 2, "exit 0");
  other.policy.wait = {0.1};
  EXPECT_EQ(start(other).get().exit_code, 4);
}

TEST_F(SupervisorTest, AProgramThatIsNotThereEndsTheJob) {
  HostJob missing = job(0, 1, "");
  missing.program = "/no/such/program";
  const Verdict verdict = start(missing).get();
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_NE(verdict.error->message.find("/no/such/program"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::launch
