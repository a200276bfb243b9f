#include "lockstep/data/token_index.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace lockstep::data {
namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

// u16, two documents of 3 and 2 tokens, as Megatron writes them.
const std::string kGolden = from_hex(
    "4d4d494449445800000100000000000000080200000000000000030000000000000003000000020000000000"
    "0000000000000600000000000000000000000000000001000000000000000200000000000000");
constexpr std::int64_t kBinBytes = 10;

Result<TokenIndex> parse(const std::string& bytes, std::int64_t bin_bytes = kBinBytes) {
  return TokenIndex::parse(std::as_bytes(std::span(bytes)), "x.idx", bin_bytes);
}

template <class Number>
std::string with(std::string bytes, std::size_t at, Number number) {
  std::memcpy(bytes.data() + at, &number, sizeof number);
  return bytes;
}

TEST(TokenIndex, ReadsWhatMegatronWrites) {
  ASSERT_EQ(kGolden.size(), 82U);
  const auto index = parse(kGolden);
  ASSERT_TRUE(index.ok()) << index.error().message;
  EXPECT_EQ(index->type(), TokenType::kU16);
  EXPECT_EQ(index->pieces(), 2);
  EXPECT_EQ(index->documents(), 2);
  EXPECT_EQ(index->tokens(), 5);
  EXPECT_EQ(index->lengths()[0], 3);
  EXPECT_EQ(index->lengths()[1], 2);
  EXPECT_EQ(index->tokens_before(1), 3);
  EXPECT_EQ(index->tokens_before(2), 5);
  EXPECT_EQ(index->document_of(0), 0);
  EXPECT_EQ(index->document_of(1), 1);
}

TEST(TokenIndex, SaysWhereItIsWrong) {
  struct Case {
    std::string bytes, message;
  };
  const auto golden = [](std::size_t at, auto number) { return with(kGolden, at, number); };
  const Case cases[] = {
      {"", "`x.idx`, byte 0: the file ends; an index has at least 34 bytes"},
      {kGolden.substr(0, 33), "`x.idx`, byte 33: the file ends; an index has at least 34 bytes"},
      {golden(0, 'm'), "`x.idx`, byte 0: it does not begin like a Megatron index (MMIDIDX)"},
      {golden(9, std::uint64_t{2}), "`x.idx`, byte 9: version 2; only version 1 is known"},
      {golden(17, std::uint8_t{7}), "`x.idx`, byte 17: type 7 is a real, which no token is"},
      {golden(17, std::uint8_t{9}), "`x.idx`, byte 17: type 9 is unknown"},
      {golden(18, ~std::uint64_t{0}),
       "`x.idx`, byte 18: 18446744073709551615 pieces need more "
       "than the 82 bytes of the file"},
      {golden(26, std::uint64_t{1} << 61),
       "`x.idx`, byte 26: 2305843009213693952 ends of "
       "documents do not fit the 24 bytes after the pieces"},
      {golden(26, std::uint64_t{0}),
       "`x.idx`, byte 26: 0 ends of documents do not fit the 24 bytes after the pieces"},
      {kGolden + "x", "`x.idx`, byte 82: 1 bytes too many at the end"},
      {kGolden + "xx", "`x.idx`, byte 82: pieces have modes: multimodal files are not supported"},
      {golden(34, std::int32_t{-1}), "`x.idx`, byte 34: piece 0 has -1 tokens"},
      {golden(34, std::int32_t{2147483647}),
       "`x.idx`, byte 34: piece 0 ends at byte 4294967294 of the tokens, which have 10"},
      {golden(50, std::int64_t{4}),
       "`x.idx`, byte 50: piece 1 begins at byte 4 of the tokens; the one before ends at 6"},
      {golden(38, std::int32_t{1}),
       "`x.idx`, byte 82: all pieces together have 8 bytes, but the "
       "tokens beside them 10"},
      {golden(58, std::int64_t{1}),
       "`x.idx`, byte 58: the first document begins at piece 1, not at 0"},
      {golden(66, std::int64_t{3}),
       "`x.idx`, byte 66: document 1 begins at piece 3; it must lie from 0 to 2"},
      {golden(74, std::int64_t{1}), "`x.idx`, byte 74: documents end at piece 1 of 2"},
  };
  for (const Case& c : cases) {
    const auto index = parse(c.bytes);
    ASSERT_FALSE(index.ok()) << c.message;
    EXPECT_EQ(index.error().message, c.message);
    EXPECT_EQ(index.error().code, Code::kBadTokenFile);
  }
}

// Every flipped bit is noticed but one: document 1 may begin at piece 0, document 0 being empty.
TEST(TokenIndex, NoticesEveryFlippedBitAndEveryLostByte) {
  int accepted = 0;
  for (std::size_t bit = 0; bit < 8 * kGolden.size(); ++bit) {
    std::string bytes = kGolden;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    accepted += parse(bytes).ok() ? 1 : 0;
  }
  EXPECT_EQ(accepted, 1);
  for (std::size_t size = 0; size < kGolden.size(); ++size)
    EXPECT_FALSE(parse(kGolden.substr(0, size)).ok()) << size;
  EXPECT_FALSE(parse(kGolden, kBinBytes - 1).ok());
  EXPECT_FALSE(parse(kGolden, kBinBytes + 1).ok());
}

TEST(TokenIndex, DocumentsMayHaveSeveralPiecesOrNone) {
  const std::string bytes = with(kGolden, 66, std::int64_t{0});
  const auto index = parse(bytes);
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->document_of(0), 1);
  EXPECT_EQ(index->document_of(1), 1);
  EXPECT_EQ(index->first_piece(1), 0);
  EXPECT_EQ(index->first_piece(2), 2);
}

}  // namespace
}  // namespace lockstep::data
