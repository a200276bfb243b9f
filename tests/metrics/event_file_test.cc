#include "lockstep/metrics/event_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace lockstep::metrics {
namespace {

namespace fs = std::filesystem;

std::uint32_t crc_of(std::string_view text) { return crc32c(as_byte_span(text)); }

// RFC 3720, B.4.
TEST(Crc32c, IsThatOfTheStandard) {
  EXPECT_EQ(crc_of("123456789"), 0xE3069283u);
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc_of(std::string(32, '\xFF')), 0x62A8AB43u);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  EXPECT_EQ(crc_of(ascending), 0x46DD794Eu);
}

template <class Number>
Number number_at(const std::string& bytes, std::size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

std::uint32_t masked(std::string_view text) {
  const std::uint32_t crc = crc_of(text);
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

// The messages of a file, every checksum checked.
std::vector<std::string> messages(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string bytes = text.str();
  std::vector<std::string> found;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto length = number_at<std::uint64_t>(bytes, at);
    EXPECT_EQ(number_at<std::uint32_t>(bytes, at + 8), masked(bytes.substr(at, 8)));
    found.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(number_at<std::uint32_t>(bytes, at + 12 + length), masked(found.back()));
    at += 16 + length;
  }
  return found;
}

// By hand from the wire format: tag 0x09 is field 1 as 64 bits, 0x10 field 2 as varint, and so on.
std::string doubled(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  return {reinterpret_cast<const char*>(&bits), sizeof bits};
}
std::string floated(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return {reinterpret_cast<const char*>(&bits), sizeof bits};
}

TEST(EventFile, HoldsTheMessagesOfTensorBoard) {
  const fs::path dir =
      fs::temp_directory_path() / ("lockstep-events-" + std::to_string(::getpid()));
  fs::create_directories(dir);
  Result<EventFile> file = EventFile::create(dir.string(), 300, 12.5);
  ASSERT_TRUE(file.ok());
  const Scalar scalars[] = {{"loss", 2.5}, {"lr", 0.1}};
  ASSERT_TRUE(file->add(301, 13.5, scalars).ok());
  const auto found = messages(file->path());
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0], "\x09" + doubled(12.5) +
                          "\x1a\x0d"
                          "brain.Event:2");
  EXPECT_EQ(found[1], "\x09" + doubled(12.5) + "\x10\xac\x02" + "\x3a\x02\x08\x01");
  EXPECT_EQ(found[2], "\x09" + doubled(13.5) + "\x10\xad\x02" + "\x2a\x18" +
                          "\x0a\x0b\x0a\x04"
                          "loss\x15" +
                          floated(2.5F) +
                          "\x0a\x09\x0a\x02"
                          "lr\x15" +
                          floated(0.1F));

  // A later file sorts behind an earlier one, even within a second and when clocks went back.
  const Result<EventFile> later = EventFile::create(dir.string(), 1, 12.9);
  const Result<EventFile> back = EventFile::create(dir.string(), 1, 3.0);
  ASSERT_TRUE(later.ok() && back.ok());
  EXPECT_LT(file->path(), later->path());
  EXPECT_LT(later->path(), back->path());
  fs::remove_all(dir);
}

TEST(EventFile, SaysWhyItCanNotBe) {
  const Result<EventFile> file = EventFile::create("/no/such/directory", 1, 0);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, Code::kUnsuitableEnvironment);
}

}  // namespace
}  // namespace lockstep::metrics
