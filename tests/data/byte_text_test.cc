#include "lockstep/data/byte_text.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::data {
namespace {

// Documents as text, fed `step` bytes at a time; the end of each is a bar.
std::string cut(const std::vector<std::string>& files, DocumentEnd end, std::size_t step) {
  std::string text;
  ByteDocuments documents(end, [&](std::span<const std::int64_t> tokens) -> Result<void> {
    for (const std::int64_t token : tokens)
      text += token == kByteEnd ? '|' : static_cast<char>(token);
    return {};
  });
  for (const std::string& file : files) {
    for (std::size_t at = 0; at < file.size(); at += step)
      EXPECT_TRUE(documents.feed(std::string_view(file).substr(at, step)).ok());
    EXPECT_TRUE(documents.end_file().ok());
  }
  return text;
}

TEST(ByteText, BlankLinesDivideDocuments) {
  for (const std::size_t step : {1, 2, 3, 100}) {
    EXPECT_EQ(cut({"a\nb\n\nc\n"}, DocumentEnd::kBlankLine, step), "a\nb\n|c\n|");
    EXPECT_EQ(cut({"\n\n \na\n\r\n\t\nb"}, DocumentEnd::kBlankLine, step), "a\n|b|");
    EXPECT_EQ(cut({"a\r\n\r\nb\r\n"}, DocumentEnd::kBlankLine, step), "a\r\n|b\r\n|");
    EXPECT_EQ(cut({"a", "b\n"}, DocumentEnd::kBlankLine, step), "a|b\n|");
    EXPECT_EQ(cut({"", "\n", "  "}, DocumentEnd::kBlankLine, step), "");
    EXPECT_EQ(cut({"  indented\n  text\n"}, DocumentEnd::kBlankLine, step),
              "  indented\n  text\n|");
  }
}

TEST(ByteText, OrEveryFileIsOne) {
  EXPECT_EQ(cut({"a\n\nb\n", "", "c"}, DocumentEnd::kFile, 2), "a\n\nb\n|c|");
  EXPECT_EQ(cut({std::string("\xff\x00\x80", 3)}, DocumentEnd::kFile, 1),
            std::string("\xff\x00\x80|", 4));
}

TEST(ByteText, HandsOnWhatTheSinkRefuses) {
  ByteDocuments documents(DocumentEnd::kBlankLine,
                          [](std::span<const std::int64_t>) -> Result<void> {
                            return Error{Code::kBadTokenFile, "no", ""};
                          });
  EXPECT_TRUE(documents.feed("a\n").ok());
  EXPECT_FALSE(documents.feed("\n").ok());
}

}  // namespace
}  // namespace lockstep::data
