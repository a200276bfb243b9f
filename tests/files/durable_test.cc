#include "lockstep/files/durable.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"

namespace lockstep::files {
namespace {

class Durable : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    disk_.make_folder(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string bytes_in(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  Disk& disk_ = real_disk();
  const std::string folder_ = testing::TempDir() + "durable-" +
                              testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(Durable, KeepsNoMoreBytesThanWereWritten) {
  const auto file = disk_.create(folder_ + "/a", 1 << 20);
  file->write(as_byte_span("one "));
  file->write(as_byte_span("two"));
  file->sync();
  file->close();
  EXPECT_EQ(bytes_in(folder_ + "/a"), "one two");
}

// Pieces of any size from any address, some of which go to the device directly.
TEST_F(Durable, WritesPiecesInTheirOrder) {
  std::vector<std::byte> memory(std::size_t{9} << 20);
  for (std::size_t i = 0; i < memory.size(); ++i)
    memory[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  const auto begin = (4096 - reinterpret_cast<std::uintptr_t>(memory.data()) % 4096) % 4096;
  const std::span<const std::byte> aligned = std::span(memory).subspan(begin, std::size_t{8} << 20);
  const auto file = disk_.create(folder_ + "/a", 0);
  std::string expected;
  const auto write = [&](std::size_t at, std::size_t size) {
    file->write(aligned.subspan(at, size));
    expected.append(reinterpret_cast<const char*>(aligned.data()) + at, size);
  };
  write(0, 4096);
  write(0, std::size_t{3} << 20);
  write(4096, (std::size_t{2} << 20) + 17);
  write(0, std::size_t{2} << 20);  // aligned, but not where the file is
  write(1, std::size_t{2} << 20);
  file->sync();
  file->close();
  EXPECT_EQ(bytes_in(folder_ + "/a"), expected);
}

TEST_F(Durable, ReplacesAFileAndLeavesNothingBeside) {
  replace_file(disk_, folder_ + "/latest", "1\n");
  replace_file(disk_, folder_ + "/latest", "2\n");
  EXPECT_EQ(bytes_in(folder_ + "/latest"), "2\n");
  EXPECT_EQ(disk_.list(folder_), (std::vector<std::string>{"latest"}));
}

TEST_F(Durable, ListsInOrder) {
  disk_.make_folder(folder_ + "/b");
  disk_.create(folder_ + "/b/inner", 0)->close();
  disk_.create(folder_ + "/a", 0)->close();
  EXPECT_EQ(disk_.list(folder_), (std::vector<std::string>{"a", "b"}));
  disk_.rename(folder_ + "/b", folder_ + "/c");
  disk_.sync_folder(folder_);
  EXPECT_EQ(disk_.list(folder_ + "/c"), (std::vector<std::string>{"inner"}));
  EXPECT_TRUE(disk_.list(folder_ + "/absent").empty());
}

// Removal takes a folder of the program's own files whole, or leaves it as it is.
TEST_F(Durable, RemovesOwnFoldersAndNothingElse) {
  namespace fs = std::filesystem;
  const auto is_own = [](std::string_view name) { return name.starts_with("own"); };
  const auto make = [&](const std::string& name, const std::vector<std::string>& inner) {
    disk_.make_folder(folder_ + "/" + name);
    for (const std::string& file : inner)
      disk_.create(folder_ + "/" + name + "/" + file, 0)->close();
    return folder_ + "/" + name;
  };
  EXPECT_TRUE(disk_.remove_folder(make("a", {"own1", "own2"}), is_own));
  EXPECT_FALSE(fs::exists(folder_ + "/a"));
  const std::string victim = make("victim", {"own1"});
  fs::create_directory_symlink(victim, folder_ + "/link");
  const std::string notes = make("notes", {"own1", "notes.txt"});
  const std::string nested = make("nested", {"own1"});
  fs::create_directory(nested + "/own2");
  const std::string linked = make("linked", {"own1"});
  fs::create_symlink(victim + "/own1", linked + "/own2");
  disk_.create(folder_ + "/own-file", 0)->close();
  for (const std::string& path :
       {folder_ + "/link", notes, nested, linked, folder_ + "/own-file", folder_ + "/absent"}) {
    EXPECT_FALSE(holds_only(path, is_own)) << path;
    EXPECT_FALSE(disk_.remove_folder(path, is_own)) << path;
  }
  EXPECT_TRUE(fs::exists(victim + "/own1") && fs::exists(notes + "/own1") &&
              fs::exists(nested + "/own1") && fs::exists(linked + "/own1"));
  EXPECT_TRUE(fs::is_symlink(folder_ + "/link"));
}

TEST_F(Durable, TellsWhatFailedWhereAndWhy) {
  const auto message = [&](auto call) -> std::string {
    try {
      call();
    } catch (const IoError& error) {
      EXPECT_EQ(error.error().code, Code::kDiskFailed);
      return error.what();
    }
    return "nothing failed";
  };
  const std::string path = folder_ + "/x";
  EXPECT_EQ(message([&] { disk_.remove_file(path); }),
            "cannot remove `" + path + "`: No such file or directory");
  disk_.create(path, 0)->close();
  EXPECT_EQ(message([&] { disk_.create(path, 0); }), "cannot create `" + path + "`: File exists");
  EXPECT_EQ(message([&] { disk_.make_folder(path); }),
            "cannot make folder `" + path + "`: File exists");
  EXPECT_EQ(message([&] { disk_.sync_folder(path); }),
            "cannot open folder `" + path + "`: Not a directory");
  EXPECT_EQ(message([&] { disk_.rename(path, folder_ + "/no/y"); }),
            "cannot rename `" + path + "` to `" + folder_ + "/no/y`: No such file or directory");
}

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
