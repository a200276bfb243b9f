#include "lockstep/base/mapped_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

namespace lockstep {
namespace {

std::string written(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string text_of(const MappedFile& file) {
  std::string text(file.bytes().size(), '\0');
  if (!text.empty()) std::memcpy(text.data(), file.bytes().data(), text.size());
  return text;
}

TEST(MappedFile, HasTheBytesOfTheFile) {
  const std::string content = std::string("a\0b", 3) + std::string(10'000, 'x');
  const auto file = MappedFile::open(written("mapped", content));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(text_of(*file), content);
}

TEST(MappedFile, AnEmptyFileHasNoBytes) {
  const auto file = MappedFile::open(written("mapped-empty", ""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFile, ExpectingBytesChangesNothing) {
  const auto file = MappedFile::open(written("mapped-expected", std::string(10'000, 'x')));
  ASSERT_TRUE(file.ok());
  for (const std::size_t first : {0, 1, 4096, 9999, 10'000, 20'000}) {
    file->expect(first, 0);
    file->expect(first, 1);
    file->expect(first, ~std::size_t{0});
  }
  EXPECT_EQ(text_of(*file), std::string(10'000, 'x'));
  MappedFile().expect(0, 1);
}

TEST(MappedFile, MovesWithItsBytes) {
  auto first = MappedFile::open(written("mapped-1", "one"));
  auto second = MappedFile::open(written("mapped-2", "two"));
  ASSERT_TRUE(first.ok() && second.ok());
  MappedFile moved = *std::move(first);
  EXPECT_EQ(text_of(moved), "one");
  moved = *std::move(second);
  EXPECT_EQ(text_of(moved), "two");
}

TEST(MappedFile, RefusesWhatIsNoFileWithTheReason) {
  const auto absent = MappedFile::open(testing::TempDir() + "no-such-file");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, Code::kFileUnreadable);
  EXPECT_NE(absent.error().message.find("No such file"), std::string::npos);
  const auto folder = MappedFile::open(testing::TempDir());
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.error().message.find("not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
