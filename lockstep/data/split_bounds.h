// Where the splits of a file begin and end.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/corpus.h"

namespace lockstep::data {

// Weights divided by their sum, in the order of additions in which numpy.sum takes them, whose last bit
// shows in Megatron's order. REQUIRES: none negative, one positive.
std::vector<double> normalised(std::span<const double> weights);

struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// The pieces of each split: bounds at the running sum of the shares times the number of pieces, rounded
// half to even. REQUIRES: shares as of normalised().
std::array<Range, 3> split_bounds(const Shares& shares, std::int64_t pieces);

}  // namespace lockstep::data
