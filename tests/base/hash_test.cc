#include "lockstep/base/hash.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string counting_bytes(std::size_t count) {
  std::string text(count, '\0');
  for (std::size_t i = 0; i < count; ++i) text[i] = static_cast<char>(i * 131 % 251);
  return text;
}

std::string hex_of_sha256(std::string_view text) { return to_hex(ByteSpan(sha256(text))); }

// As printed by other implementations of XXH3.
TEST(Xxh3, GivesTheKnownAnswers) {
  EXPECT_EQ(to_hex(xxh3_64("")), "2d06800538d394c2");
  EXPECT_EQ(to_hex(xxh3_64("abc")), "78af5f94892f3950");
  EXPECT_EQ(to_hex(xxh3_128("")), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(to_hex(xxh3_128("abc")), "06b05ab6733a618578af5f94892f3950");
}

// XXH3 changes its method at 16, 128, 240 and 1024 bytes.
TEST(Xxh3, CuttingMakesNoDifference) {
  for (const std::size_t size : {0, 1, 16, 17, 128, 129, 240, 241, 255, 256, 257, 1024, 5000}) {
    const std::string text = counting_bytes(size);
    for (const std::size_t piece : {1, 7, 64, 256, 1000}) {
      Xxh3 stream;
      for (std::size_t at = 0; at < size; at += piece)
        stream.update(std::string_view(text).substr(at, piece));
      EXPECT_EQ(stream.digest64(), xxh3_64(text)) << size << " by " << piece;
      EXPECT_EQ(stream.digest128(), xxh3_128(text)) << size << " by " << piece;
    }
  }
}

// FIPS 180 examples of NIST: one block, two blocks, a million times 'a', and the empty message.
TEST(Sha256, GivesThePublishedAnswers) {
  EXPECT_EQ(hex_of_sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of_sha256("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_of_sha256("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                          "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(hex_of_sha256(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Digests of 0, 1, ..., 130 bytes, one after the other, hashed once more: every padding there is.
// The answer comes from Python's hashlib.
TEST(Sha256, PadsEveryLength) {
  std::vector<std::byte> all;
  for (std::size_t size = 0; size <= 130; ++size)
    std::ranges::copy(sha256(counting_bytes(size)), std::back_inserter(all));
  EXPECT_EQ(to_hex(ByteSpan(sha256(ByteSpan(all)))),
            "479a4a2da35f854b2c560c296bc3ed9a3912b0106646d0c1e7f7a8ac2bf059c7");
}

TEST(Hex, KeepsLeadingZerosAndOrder) {
  EXPECT_EQ(to_hex(std::uint64_t{0xab}), "00000000000000ab");
  EXPECT_EQ(to_hex(Hash128{1, 2}), "00000000000000010000000000000002");
  EXPECT_EQ(to_hex(as_byte_span("\x01\xf0")), "01f0");
  EXPECT_EQ(to_hex(ByteSpan()), "");
}

}  // namespace
}  // namespace lockstep
