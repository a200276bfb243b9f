#include "lockstep/metrics/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <filesystem>

#include "lockstep/base/check.h"

namespace lockstep::metrics {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  std::array<std::uint32_t, 256> table = {};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? 0x82F63B78u : 0);
    table[byte] = rest;
  }
  return table;
}();

// A CRC of data that holds CRCs would be weak, so those that are stored are changed.
std::uint32_t masked_crc(std::string_view text) {
  return std::rotr(crc32c(as_byte_span(text)), 15) + 0xA282EAD8u;
}

// Little-endian, on any machine.
template <class Unsigned>
std::string fixed(Unsigned number) {
  std::string text;
  for (std::size_t i = 0; i < sizeof number; ++i)
    text += static_cast<char>(static_cast<unsigned char>(number >> 8 * i));
  return text;
}

// Fields of a protobuf message: a key (number and wire type), then the value.
std::string varint(std::uint64_t number) {
  std::string text;
  for (; number >= 0x80; number >>= 7)
    text += static_cast<char>(static_cast<unsigned char>(number | 0x80));
  return text + static_cast<char>(number);
}
std::string key(unsigned number, unsigned wire_type) { return varint(number << 3 | wire_type); }
std::string field(unsigned number, std::uint64_t value) { return key(number, 0) + varint(value); }
std::string field(unsigned number, double value) {
  return key(number, 1) + fixed(std::bit_cast<std::uint64_t>(value));
}
std::string field(unsigned number, float value) {
  return key(number, 5) + fixed(std::bit_cast<std::uint32_t>(value));
}
std::string field(unsigned number, std::string_view text) {
  return key(number, 2) + varint(text.size()) + std::string(text);
}

// Numbers of Event, Summary, Summary.Value and SessionLog.
std::string event(double wall_time, std::int64_t step) {
  return field(1, wall_time) + field(2, static_cast<std::uint64_t>(step));
}
std::string summary_of(std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars)
    summary += field(1, field(1, scalar.tag) + field(2, static_cast<float>(scalar.value)));
  return summary;
}
const std::string kStart = field(1, std::uint64_t{1});

// TensorBoard reads the files of a directory in the order of their names, which begin with a time.
std::int64_t second_after_others(const std::string& directory, double wall_time) {
  auto second = static_cast<std::int64_t>(wall_time);
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    std::int64_t other = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), other);
    second = std::max(second, other + 1);
  }
  return second;
}

std::string host_name() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace

std::uint32_t crc32c(ByteSpan bytes) {
  std::uint32_t rest = ~0u;
  for (const std::byte byte : bytes)
    rest = rest >> 8 ^ kCrcTable[(rest ^ std::to_integer<std::uint32_t>(byte)) & 0xFF];
  return ~rest;
}

Result<EventFile> EventFile::create(const std::string& directory, std::int64_t first_step,
                                    double wall_time) {
  std::string second = std::to_string(second_after_others(directory, wall_time));
  second.insert(0, second.size() < 10 ? 10 - second.size() : 0, '0');
  const std::string path = (std::filesystem::path(directory) /
                            join_parts(kPrefix, second, ".", host_name(), ".", ::getpid()))
                               .string();
  AppendFile opened = LS_TRY(AppendFile::create(path));
  EventFile file(std::move(opened));
  for (const std::string& message :
       {field(1, wall_time) + field(3, std::string_view("brain.Event:2")),
        event(wall_time, first_step) + field(7, kStart)})
    LS_TRY(file.write_record(message));
  return file;
}

Result<void> EventFile::add(std::int64_t step, double wall_time, std::span<const Scalar> scalars) {
  return write_record(event(wall_time, step) + field(5, summary_of(scalars)));
}

Result<void> EventFile::write_record(const std::string& message) {
  const std::string length = fixed(static_cast<std::uint64_t>(message.size()));
  return file_.add(length + fixed(masked_crc(length)) + message + fixed(masked_crc(message)));
}

}  // namespace lockstep::metrics
