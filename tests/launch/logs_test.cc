#include "lockstep/launch/logs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

class LogsTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("lockstep_logs_test." + std::to_string(::getpid()));
    fs::remove_all(dir_);
    ASSERT_TRUE(Logs::check(dir_.string()).ok());
  }
  void TearDown() override { fs::remove_all(dir_); }

  // Ranks `first` and `first` + 1 of four.
  void run(int first, const std::string& script, const std::string& heading = "== start\n") {
    Logs logs(dir_.string(), first, 2, heading, [this](const std::string& text) { told_ += text; });
    Job job = {"/bin/sh", {"-c", script}, 2, {}, "", Place{first, 4, "127.0.0.1", 1}};
    job.outputs = logs.outputs();
    auto ranks = RankProcesses::start(job);
    logs.started();
    for (const int rank : {0, 1})
      EXPECT_TRUE(ranks->wait(Rank{rank}, Deadline::after(Seconds{20}))->ok());
  }
  std::string log(int rank) const {
    std::ostringstream text;
    text << std::ifstream(dir_ / ("rank-" + std::to_string(rank) + ".log")).rdbuf();
    return text.str();
  }

  fs::path dir_;
  std::string told_;
};

TEST_F(LogsTest, EachRankHasAFileToWhichEveryStartAdds) {
  run(2, "echo out $RANK; echo err $RANK >&2");
  run(2, "echo again", "== start 2\n");
  EXPECT_EQ(log(2), "== start\nout 2\nerr 2\n== start 2\nagain\n");
  EXPECT_EQ(log(3), "== start\nout 3\nerr 3\n== start 2\nagain\n");
}

TEST_F(LogsTest, RankZeroPrintsHereToo) {
  testing::internal::CaptureStdout();
  run(0, "echo out $RANK; echo err $RANK >&2");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "out 0\n");
  EXPECT_EQ(log(1), "== start\nout 1\nerr 1\n");
  EXPECT_NE(log(0).find("out 0\n"), std::string::npos);
}

// More than a pipe holds: who prints into a full disk would wait if nobody took it.
TEST_F(LogsTest, AFullDiskIsToldOfOnceAndEndsNobody) {
  fs::create_symlink("/dev/full", dir_ / "rank-2.log");
  run(2, "head -c 1000000 /dev/zero | tr '\\0' 'x'");
  EXPECT_EQ(log(3).size(), 9 + 1000000u);
  EXPECT_NE(told_.find("rank-2.log` cannot be written: No space left"), std::string::npos) << told_;
  EXPECT_EQ(told_.find("cannot", told_.find("cannot") + 1), std::string::npos) << told_;
}

TEST_F(LogsTest, AFolderThatCannotBeMadeIsRefused) {
  const auto checked = Logs::check("/proc/no/such");
  ASSERT_FALSE(checked.ok());
  EXPECT_NE(checked.error().message.find("--logs /proc/no/such"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::launch
