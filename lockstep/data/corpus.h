// The text a run learns from: token files, how they are mixed, and which part of them is held out.
// Plain data; any thread may read it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

// The parts a corpus is divided into, always in this order.
enum class Split : std::uint8_t { kTrain, kValidation, kTest };
inline constexpr std::array<Split, 3> kSplits = {Split::kTrain, Split::kValidation, Split::kTest};

std::string_view to_text(Split split);  // "train", "validation", "test"

using Shares = std::array<double, 3>;  // of the splits; only their ratio counts

struct Corpus {
  // Each the prefix of a Megatron pair PREFIX.bin and PREFIX.idx, or an llm.c file that ends in .bin.
  std::vector<std::string> files = {};
  // Beside `files`; only their ratio counts. Empty: every file in proportion to the samples it has.
  std::vector<double> weights = {};
  Shares shares = {969, 30, 1};
  std::uint32_t seed = 0;
  bool operator==(const Corpus&) const = default;
};

}  // namespace lockstep::data
