// Whatever happens to the bytes of a checkpoint after they were written is noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "lockstep/checkpoint/checkpoint.h"
#include "tests/checkpoint/recording_disk.h"
#include "tests/checkpoint/sample.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using Bytes = std::map<std::string, std::string>;  // by name of the file

Bytes bytes_in(const std::string& folder) {
  Bytes found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    found[entry.path().filename()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return found;
}

// What opening and looking at everything says; empty: it is accepted.
Error told(const std::string& folder) {
  auto opened = Checkpoint::open(folder);
  if (!opened.ok()) return opened.error();
  const auto whole = opened->verify();
  return whole.ok() ? Error{Code::kBug, "", ""} : whole.error();
}

std::uint64_t header_length(const std::string& file) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  return length;
}

// A digit before `end`, the first from about `begin` on, becomes another; false when there is none.
bool change_digit(std::string& bytes, std::size_t end, std::size_t begin) {
  const std::size_t digit = bytes.find_first_of("0123456789", begin % end);
  if (digit >= end) return false;
  bytes[digit] = static_cast<char>('0' + (bytes[digit] - '0' + 1) % 10);
  return true;
}

// One fault; its name.
std::string spoil(Bytes& files, const Bytes& other, Dice& dice) {
  auto at = files.begin();
  std::advance(at, roll(dice, 0, static_cast<std::int64_t>(files.size()) - 1));
  std::string& bytes = at->second;
  const std::string name = at->first + ": ";
  const auto size = static_cast<std::int64_t>(bytes.size());
  const auto any = [&] { return static_cast<std::size_t>(roll(dice, 0, size - 1)); };
  switch (roll(dice, 0, 9)) {
    case 0:
    case 1: {  // anywhere, in the few bytes that are no padding, and among tensors, at the end
      const std::size_t where[] = {any(), any() % 600, bytes.size() - 1 - any() % 200};
      const std::size_t place = where[roll(dice, 0, 2)] % bytes.size();
      bytes[place] = static_cast<char>(bytes[place] ^ (1 << roll(dice, 0, 7)));
      return name + "flip";
    }
    case 2:
      bytes.resize(any());
      return name + "truncate";
    case 3: {
      const std::size_t begin = any(), length = 1 + any() % 64;
      for (std::size_t i = begin; i < std::min(begin + length, bytes.size()); ++i) bytes[i] = '\0';
      return name + "zero";
    }
    case 4: {
      const std::size_t a = any(), b = any();
      std::swap(bytes[a], bytes[b]);
      return name + "swap bytes";
    }
    case 5: {
      auto second = std::next(at) == files.end() ? files.begin() : std::next(at);
      std::swap(bytes, second->second);
      return name + "swap files";
    }
    case 6:
      bytes = other.contains(at->first) ? other.at(at->first) : std::string();
      return name + "another checkpoint's";
    case 7:
      bytes += std::string(1 + any() % 5000, static_cast<char>(roll(dice, 0, 255)));
      return name + "longer";
    case 8:  // a header that lies
      if (!change_digit(bytes, at->first == kManifestName ? bytes.size() : 8 + header_length(bytes),
                        any()))
        break;
      return name + "another digit";
    default: {
      if (at->first == kManifestName) break;
      const auto length =
          header_length(bytes) + static_cast<std::uint64_t>(roll(dice, -4000, 4000));
      std::memcpy(bytes.data(), &length, 8);
      return name + "another length of the header";
    }
  }
  files.erase(at);
  return name + "gone";
}

// Of what has changed: a file, the manifest, a length, what lies before the tensors, or tensors.
std::string part_of(const Bytes& good, const Bytes& files) {
  for (const auto& [name, bytes] : good) {
    const auto now = files.find(name);
    if (now == files.end()) return "missing";
    if (now->second == bytes) continue;
    if (name == kManifestName) return "manifest";
    if (now->second.size() != bytes.size()) return "length";
    const auto at = std::ranges::mismatch(bytes, now->second).in1 - bytes.begin();
    return std::cmp_less(at, 8 + header_length(bytes)) ? "header" : "payload";
  }
  return "";
}

// By default 500, of every part at least 20; LOCKSTEP_ALL_CORRUPTIONS=1 makes 20000 of them. The
// newest of a folder is hurt: `verify` refuses it, and it stays where it is.
TEST(Corruption, OfAnyKindIsRefusedWithFileAndTensor) {
  RecordingDisk disk;
  const std::string folder = scratch("corruption");
  fs::remove_all(folder);
  fs::create_directories(folder);
  Dice dice(1);
  const std::string path = save_sample(disk, folder, 1, dice, 3);
  const Bytes good = bytes_in(path), other = bytes_in(save_sample(disk, folder, 2, dice, 3));
  ASSERT_EQ(told(path).message, "");
  const int trials = std::getenv("LOCKSTEP_ALL_CORRUPTIONS") != nullptr ? 20000 : 500;
  std::map<std::string, int> kinds, parts;
  int refused = 0, same = 0, named_tensor = 0;
  const std::string hurt = folder + "/hurt/step-00000001";
  fs::create_directories(folder + "/hurt");
  save_sample(disk, folder + "/hurt", 0, dice);
  for (int trial = 0; refused < trials; ++trial) {
    Bytes files = good;
    const std::string fault = spoil(files, other, dice);
    if (files == good) {  // two equal bytes were swapped, or zeros set to zero
      ++same;
      continue;
    }
    fs::create_directories(hurt);
    for (const auto& entry : fs::directory_iterator(hurt))
      if (!files.contains(entry.path().filename())) fs::remove(entry.path());
    for (const auto& [name, bytes] : files)
      std::ofstream(hurt + "/" + name, std::ios::binary) << bytes;
    const Error error = told(hurt);
    ASSERT_NE(error.message, "") << "trial " << trial << ", accepted: " << fault;
    EXPECT_EQ(bytes_in(hurt), files);
    ++refused;
    ++parts[part_of(good, files)];
    ++kinds[fault.substr(fault.find(": ") + 2)];
    // The file that was changed, or another that is changed too.
    bool names_file = false;
    for (const auto& [name, bytes] : good)
      names_file = names_file || (error.message.find(name) != std::string::npos &&
                                  (!files.contains(name) || files.at(name) != bytes));
    EXPECT_TRUE(names_file) << fault << ": " << error.message;
    if (error.code == Code::kCorruptCheckpoint) {
      ++named_tensor;
      EXPECT_NE(error.message.find("tensor `"), std::string::npos)
          << fault << ": " << error.message;
    }
  }
  std::printf("%d corruptions refused, 0 accepted (%d named a tensor; %d trials changed nothing):",
              refused, named_tensor, same);
  for (const auto& [kind, count] : kinds) std::printf(" %s %d,", kind.c_str(), count);
  for (const auto& [part, count] : parts) std::printf(" %d in %s,", count, part.c_str());
  std::printf("\n");
  EXPECT_EQ(parts.size(), 5u);
  for (const auto& [part, count] : parts) EXPECT_GE(count, 20) << part;
  fs::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::checkpoint
