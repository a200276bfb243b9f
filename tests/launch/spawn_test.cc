#include "lockstep/launch/spawn.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace lockstep::launch {
namespace {

Job shell(int ranks, const std::string& script) {
  return {"/bin/sh", {"-c", script}, ranks, {}, ""};
}

TEST(Spawn, RanksGetWhatTorchrunWouldGiveThem) {
  const std::string prefix = std::filesystem::temp_directory_path() /
                             ("lockstep_spawn_test." + std::to_string(::getpid()) + ".");
  Job job = shell(
      3,
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $OMP_NUM_THREADS $EXTRA; "
      "test $MASTER_PORT -gt 0");
  job.environment = {"EXTRA=more"};
  job.output_prefix = prefix;
  auto processes = RankProcesses::start(job);
  ASSERT_TRUE(processes.ok());
  for (int r = 0; r < 3; ++r) {
    EXPECT_TRUE(processes->wait(Rank{r}, Deadline::after(Seconds{20}))->ok());
    std::ifstream file(prefix + std::to_string(r));
    std::stringstream text;
    text << file.rdbuf();
    const std::string number = std::to_string(r);
    EXPECT_EQ(text.str(), number + " 3 " + number + " 3 127.0.0.1 1 more\n");
    std::filesystem::remove(prefix + std::to_string(r));
  }
}

// Nor can a process that comes before rank 0 has begun to use it.
TEST(Spawn, NobodyElseCanTakeThePort) {
  auto processes = RankProcesses::start(shell(2, R"(
      test $RANK = 0 && exec sleep 100
      exec python3 -c "
import errno, os, socket
try:
    socket.create_server(('127.0.0.1', int(os.environ['MASTER_PORT'])))
except OSError as error:
    exit(error.errno == errno.EADDRINUSE and 7)
")"));
  EXPECT_EQ(processes->wait(Rank{1}, Deadline::after(Seconds{60}))->exit_code, 7);
}

TEST(Spawn, TellsHowARankEnded) {
  auto processes = RankProcesses::start(shell(1, "exit 7"));
  EXPECT_EQ(processes->wait(Rank{0}, Deadline::after(Seconds{20}))->exit_code, 7);
  EXPECT_EQ(processes->wait(Rank{0}, Deadline::never())->exit_code, 7);  // still known
  auto killed = RankProcesses::start(shell(1, "exec sleep 100"));
  killed->signal(Rank{0}, SIGKILL);
  EXPECT_EQ(killed->wait(Rank{0}, Deadline::after(Seconds{20}))->signal, SIGKILL);
}

TEST(Spawn, AWaitEndsAtItsDeadlineAndTheJobEndsWithItsOwner) {
  pid_t pid = 0;
  {
    auto processes = RankProcesses::start(shell(1, "exec sleep 100"));
    pid = processes->pid(Rank{0});
    EXPECT_FALSE(processes->wait(Rank{0}, Deadline::after(Seconds{0.01})).has_value());
  }
  EXPECT_EQ(::kill(pid, 0), -1);
}

TEST(Spawn, AProgramThatIsNotThereIsAnError) {
  const auto processes = RankProcesses::start({"/no/such/program", {}, 2, {}, ""});
  ASSERT_FALSE(processes.ok());
  EXPECT_NE(processes.error().message.find("/no/such/program"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::launch
