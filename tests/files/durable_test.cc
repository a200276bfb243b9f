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
