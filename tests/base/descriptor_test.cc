#include "lockstep/base/descriptor.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <utility>

namespace lockstep {
namespace {

TEST(InputFile, ReadsPiecesAndTellsWhereItEnds) {
  const std::string path = testing::TempDir() + "input-file";
  std::ofstream(path, std::ios::binary) << "0123456789";
  auto opened = InputFile::open(path);
  ASSERT_TRUE(opened.ok());
  const InputFile file = *std::move(opened);
  EXPECT_EQ(file.size(), 10);
  EXPECT_EQ(file.path(), path);
  std::string piece(4, ' ');
  EXPECT_TRUE(file.read(3, std::as_writable_bytes(std::span(piece))));
  EXPECT_EQ(piece, "3456");
  EXPECT_TRUE(file.read(6, std::as_writable_bytes(std::span(piece))));
  EXPECT_FALSE(file.read(7, std::as_writable_bytes(std::span(piece))));
  std::filesystem::resize_file(path, 5);  // while it is open
  EXPECT_FALSE(file.read(3, std::as_writable_bytes(std::span(piece))));
}

TEST(InputFile, RefusesWhatIsNoFile) {
  EXPECT_EQ(InputFile::open(testing::TempDir() + "no-such").error().code, Code::kFileUnreadable);
  EXPECT_NE(InputFile::open(testing::TempDir()).error().message.find("not a regular file"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
