#include "cli/text_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

class TextFile : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  static std::string held(const std::string& name) {
    std::ifstream file(name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  const fs::path folder_ = ::testing::TempDir() + "text_file_" +
                           ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                           std::to_string(::getpid());
};

// Work whose result is to be written there may be stopped at any moment.
TEST_F(TextFile, AskingLeavesNothingBehind) {
  ASSERT_TRUE(check_writable(path("new")).ok());
  EXPECT_EQ(entries(), 0);
  std::ofstream(path("old")) << "kept";
  ASSERT_TRUE(check_writable(path("old")).ok());
  EXPECT_EQ(held(path("old")), "kept");
  EXPECT_EQ(entries(), 1);
}

// A process may write files of 1,000 bytes: the write fails half way, as on a full disk.
TEST_F(TextFile, AWriteThatFailsKeepsTheOldBytes) {
  ASSERT_TRUE(write_text(path("file"), "old").ok());
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {1000, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const Result<void> written = write_text(path("file"), std::string(5000, 'n'));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Code::kUnsuitableEnvironment);
  EXPECT_NE(written.error().message.find("cannot write `" + path("file") + "`: "),
            std::string::npos)
      << written.error().message;
  EXPECT_EQ(held(path("file")), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(TextFile, ReplacesWhatALinkNames) {
  std::ofstream(path("there")) << "old";
  fs::create_symlink("there", path("link"));
  ASSERT_TRUE(write_text(path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(held(path("there")), "new");
}

// What is no file is written where it is.
TEST_F(TextFile, DevicesStayDevices) {
  for (const char* device : {"/dev/null", "/dev/full"}) {
    EXPECT_TRUE(check_writable(device).ok());
    EXPECT_EQ(write_text(device, "text").ok(), std::string(device) == "/dev/null");
    EXPECT_TRUE(fs::is_character_file(device));
  }
}

TEST_F(TextFile, RefusesWhatCannotBeWritten) {
  for (const std::string& name : {folder_.string(), path("no/such/folder")}) {
    EXPECT_FALSE(check_writable(name).ok()) << name;
    EXPECT_FALSE(write_text(name, "text").ok()) << name;
  }
  EXPECT_EQ(entries(), 0);
}

}  // namespace
}  // namespace lockstep::cli
