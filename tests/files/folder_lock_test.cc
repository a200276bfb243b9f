#include "lockstep/files/folder_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep::files {
namespace {

class FolderLockTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::string folder_ = testing::TempDir() + "folder-lock-" + std::to_string(::getpid());
};

TEST_F(FolderLockTest, HasOneHolderUntilThatLetsGo) {
  {
    const auto first = FolderLock::take(folder_);
    ASSERT_TRUE(first.ok());
    const auto second = FolderLock::take(folder_);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Code::kConflict);
    EXPECT_NE(second.error().message.find("process " + std::to_string(::getpid()) + " on "),
              std::string::npos);
  }
  EXPECT_TRUE(FolderLock::take(folder_).ok());
}

TEST_F(FolderLockTest, DeathLetsGo) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto held = FolderLock::take(folder_);
    (void)!::write(ready[1], held.ok() ? "y" : "n", 1);
    for (;;) ::pause();
  }
  char said = 0;
  ASSERT_EQ(::read(ready[0], &said, 1), 1);
  EXPECT_EQ(said, 'y');
  EXPECT_FALSE(FolderLock::take(folder_).ok());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(FolderLock::take(folder_).ok());
}

TEST_F(FolderLockTest, ALinkInItsPlaceIsNotFollowed) {
  std::filesystem::create_symlink(folder_ + "/elsewhere", folder_ + "/.lock");
  EXPECT_THROW(FolderLock::take(folder_), IoError);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/elsewhere"));
}

}  // namespace
}  // namespace lockstep::files
