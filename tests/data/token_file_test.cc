#include "lockstep/data/token_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/data/pairs.h"

namespace lockstep::data {
namespace {

std::vector<std::int64_t> read(const TokenFile& file, std::int64_t piece, std::int64_t offset,
                               std::size_t count) {
  std::vector<std::int64_t> tokens(count);
  file.read(piece, offset, tokens);
  return tokens;
}

TEST(TokenFile, GivesBackWhatWasWrittenInEveryType) {
  const std::string folder = fresh_folder();
  for (const TokenType type : {TokenType::kU8, TokenType::kI8, TokenType::kI16, TokenType::kU16,
                               TokenType::kI32, TokenType::kI64}) {
    const Documents documents = {{1, 2, 100}, {}, {127, 0}};
    write_pair(folder + "a", documents, type);
    const auto file = TokenFile::open(folder + "a");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->type(), type);
    EXPECT_EQ(file->tokens(), 5);
    EXPECT_EQ(file->documents(), 3);
    EXPECT_EQ(file->bytes().value, 5 * width_of(type));
    for (std::size_t i = 0; i < documents.size(); ++i)
      EXPECT_EQ(read(*file, static_cast<std::int64_t>(i), 0, documents[i].size()), documents[i]);
    EXPECT_EQ(read(*file, 0, 1, 2), (std::vector<std::int64_t>{2, 100}));
    file->expect(0, 0, 5);
  }
}

TEST(TokenFile, TakesThePrefixAndBothNames) {
  const std::string folder = fresh_folder();
  write_pair(folder + "a", {{1, 2}});
  for (const char* ending : {"", ".bin", ".idx"})
    EXPECT_TRUE(TokenFile::open(folder + "a" + ending).ok());
  const auto missing = TokenFile::open(folder + "b");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Code::kFileUnreadable);
  EXPECT_EQ(missing.error().help, "`" + folder + "b` is taken for the prefix of " + folder +
                                      "b.bin and " + folder + "b.idx");
}

TEST(TokenFile, RefusesTokensThatDoNotFillTheIndex) {
  const std::string folder = fresh_folder();
  write_pair(folder + "a", {{1, 2}, {3}});
  for (const char* bin : {"", "12345", "1234567"}) {
    put_bytes(folder + "a.bin", bin);
    EXPECT_EQ(TokenFile::open(folder + "a").error().code, Code::kBadTokenFile) << bin;
  }
}

// As llm.c writes it: 256 numbers, then the tokens.
template <class Token>
std::string llmc(std::int32_t magic, std::int32_t version, const std::vector<Token>& tokens) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<std::int32_t>(tokens.size());
  std::string bytes(header.size() * 4 + tokens.size() * sizeof(Token), '\0');
  std::memcpy(bytes.data(), header.data(), 1024);
  if (!tokens.empty())
    std::memcpy(bytes.data() + 1024, tokens.data(), tokens.size() * sizeof(Token));
  return bytes;
}

TEST(TokenFile, ReadsBothKindsOfLlmcFiles) {
  const std::string path = fresh_folder() + "a.bin";
  put_bytes(path, llmc<std::uint16_t>(20240520, 1, {50256, 7, 65535}));
  const auto narrow = TokenFile::open(path);
  ASSERT_TRUE(narrow.ok()) << narrow.error().message;
  EXPECT_EQ(read(*narrow, 0, 0, 3), (std::vector<std::int64_t>{50256, 7, 65535}));
  EXPECT_EQ(narrow->documents(), 1);
  EXPECT_EQ(narrow->format(), "llm.c");

  put_bytes(path, llmc<std::uint32_t>(20240801, 7, {128000, 4294967295}));
  const auto wide = TokenFile::open(path);
  ASSERT_TRUE(wide.ok()) << wide.error().message;
  EXPECT_EQ(wide->type(), TokenType::kU32);
  EXPECT_EQ(read(*wide, 0, 0, 2), (std::vector<std::int64_t>{128000, 4294967295}));
}

TEST(TokenFile, RefusesLlmcFilesThatLie) {
  const auto message = [](const std::string& bytes) {
    return read_llmc_header(std::as_bytes(std::span(bytes)), "a.bin").error().message;
  };
  const std::string good = llmc<std::uint16_t>(20240520, 1, {1, 2, 3});
  EXPECT_EQ(message(good.substr(0, 1023)),
            "`a.bin`, byte 1023: the file ends; its header has 1024 bytes");
  EXPECT_EQ(message(good.substr(0, 1029)),
            "`a.bin`, byte 8: it says 3 tokens of 2 bytes, but 5 "
            "bytes follow its header");
  EXPECT_EQ(message(llmc<std::uint16_t>(20240520, 2, {})),
            "`a.bin`, byte 4: version 2; files that begin with 20240520 have version 1");
  EXPECT_EQ(message("abcd"), "`a.bin`, byte 0: it does not begin like an llm.c file");
  EXPECT_EQ(message("ab"), "`a.bin`, byte 0: it does not begin like an llm.c file");
}

}  // namespace
}  // namespace lockstep::data
