#include "lockstep/generate/text_stream.h"

#include <gtest/gtest.h>

namespace lockstep::generate {
namespace {

// What is shown after each byte of `text`, with "|" between.
std::string byte_by_byte(TextStream stream, std::string_view text) {
  std::string shown;
  for (const char byte : text) shown += stream.feed({&byte, 1}) + "|";
  return shown + stream.finish() + (stream.stopped() ? "!" : "");
}

TEST(TextStream, HoldsBackACodePointUntilItIsWhole) {
  EXPECT_EQ(byte_by_byte(TextStream({}), "a\xC3\xA9z"), "a||\xC3\xA9|z|");
  EXPECT_EQ(byte_by_byte(TextStream({}), "\xF0\x9F\x99\x82"), "|||\xF0\x9F\x99\x82|");
  EXPECT_EQ(byte_by_byte(TextStream({}), "\xF0\x9F"), "||\xF0\x9F") << "the end shows the rest";
}

TEST(TextStream, PassesBytesThatAreNoUtf8) {
  EXPECT_EQ(byte_by_byte(TextStream({}), "\xFF\x80z"), "\xFF|\x80|z|");
  EXPECT_EQ(byte_by_byte(TextStream({}), "\xC3z"), "|\xC3z|");
  EXPECT_EQ(byte_by_byte(TextStream({}), "\x80\x80\x80\x80"), "\x80|\x80|\x80|\x80|");
}

TEST(TextStream, EndsBeforeAStopTextHoweverItIsCut) {
  EXPECT_EQ(byte_by_byte(TextStream({"END"}), "anENDmore"), "a|n||||||||!");
  EXPECT_EQ(byte_by_byte(TextStream({"END"}), "ENEND"), "||EN|||!") << "what only began as one";
  EXPECT_EQ(byte_by_byte(TextStream({"END"}), "aEN"), "a|||EN");
  TextStream at_once({"xyz", "b"});
  EXPECT_EQ(at_once.feed("abcxyz"), "a") << "the first in the text, not in the list";
  EXPECT_TRUE(at_once.stopped());
  EXPECT_EQ(at_once.feed("more"), "");
  EXPECT_EQ(at_once.finish(), "");
  EXPECT_EQ(at_once.shown(), "a");
}

}  // namespace
}  // namespace lockstep::generate
