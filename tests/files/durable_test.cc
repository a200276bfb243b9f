#include "lockstep/files/durable.h"

#include <gtest/gtest.h>

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
    remove_all(disk_, folder_);
    disk_.make_folder(folder_);
  }
  void TearDown() override { remove_all(disk_, folder_); }

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

TEST_F(Durable, ListsInOrderAndRemovesAll) {
  disk_.make_folder(folder_ + "/b");
  disk_.create(folder_ + "/b/inner", 0)->close();
  disk_.create(folder_ + "/a", 0)->close();
  EXPECT_EQ(disk_.list(folder_), (std::vector<std::string>{"a", "b"}));
  disk_.rename(folder_ + "/b", folder_ + "/c");
  disk_.sync_folder(folder_);
  EXPECT_EQ(disk_.list(folder_ + "/c"), (std::vector<std::string>{"inner"}));
  remove_all(disk_, folder_);
  EXPECT_FALSE(std::filesystem::exists(folder_));
  EXPECT_TRUE(disk_.list(folder_).empty());
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
  EXPECT_EQ(message([&] { disk_.remove(path); }),
            "can not remove `" + path + "`: No such file or directory");
  disk_.create(path, 0)->close();
  EXPECT_EQ(message([&] { disk_.create(path, 0); }), "can not create `" + path + "`: File exists");
  EXPECT_EQ(message([&] { disk_.make_folder(path); }),
            "can not make folder `" + path + "`: File exists");
  EXPECT_EQ(message([&] { disk_.sync_folder(path); }),
            "can not open folder `" + path + "`: Not a directory");
  EXPECT_EQ(message([&] { disk_.rename(path, folder_ + "/no/y"); }),
            "can not rename `" + path + "` to `" + folder_ + "/no/y`: No such file or directory");
}

}  // namespace
}  // namespace lockstep::files
