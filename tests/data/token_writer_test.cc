#include "lockstep/data/token_writer.h"

#include <gtest/gtest.h>

#include "lockstep/base/hash.h"
#include "tests/data/pairs.h"

namespace lockstep::data {
namespace {

std::vector<std::string> names_in(const std::string& folder) {
  return files::real_disk().list(folder);
}

TEST(TokenWriter, WritesTheBytesThatMegatronWrites) {
  const std::string folder = fresh_folder();
  write_pair(folder + "a", {{1, 2, 3}, {65535, 0}});
  EXPECT_EQ(
      to_hex(as_byte_span(bytes_of(folder + "a.idx"))),
      "4d4d494449445800000100000000000000080200000000000000030000000000000003000000020000000000"
      "0000000000000600000000000000000000000000000001000000000000000200000000000000");
  EXPECT_EQ(to_hex(as_byte_span(bytes_of(folder + "a.bin"))), "010002000300ffff0000");
  EXPECT_EQ(names_in(folder), (std::vector<std::string>{"a.bin", "a.idx"}));
}

TEST(TokenWriter, LeavesNothingBehindWhenItIsGivenUp) {
  const std::string folder = fresh_folder();
  write_pair(folder + "a", {{1}});
  const std::string before = bytes_of(folder + "a.bin");
  {
    TokenWriter writer(files::real_disk(), folder + "a", TokenType::kU16);
    ASSERT_TRUE(writer.add(std::vector<std::int64_t>(1 << 20, 7)).ok());
    EXPECT_EQ(names_in(folder).size(), 3U);
  }
  EXPECT_EQ(names_in(folder), (std::vector<std::string>{"a.bin", "a.idx"}));
  EXPECT_EQ(bytes_of(folder + "a.bin"), before);
}

TEST(TokenWriter, RefusesTokensThatDoNotFit) {
  const std::string folder = fresh_folder();
  TokenWriter writer(files::real_disk(), folder + "a", TokenType::kU16);
  ASSERT_TRUE(writer.add(std::vector<std::int64_t>{1}).ok());
  for (const std::int64_t token : {-1, 65536}) {
    const auto refused = writer.add(std::vector<std::int64_t>{2, token});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message, "document 1 has a token that does not fit u16");
  }
  const Written written = writer.finish();
  EXPECT_EQ(written.documents, 1);
  EXPECT_EQ(written.tokens, 1);
  EXPECT_EQ(bytes_of(folder + "a.bin").size(), 2U);
}

TEST(TokenWriter, AFolderThatIsNotThereIsTheWorldsFault) {
  EXPECT_THROW(TokenWriter(files::real_disk(), fresh_folder() + "none/a", TokenType::kU16),
               IoError);
}

}  // namespace
}  // namespace lockstep::data
