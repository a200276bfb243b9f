// One bit that a rank flips in its own state, to see what checks do about it. For tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "lockstep/base/result.h"
#include "lockstep/train/state_pieces.h"

namespace lockstep::train {

struct BitFlip {
  // Before the step; or when its gradients are reduced; or as if Update had computed it.
  enum class When : std::uint8_t { kBefore, kNorm, kUpdate };
  Rank rank;
  std::int64_t step = 0;  // from 0
  When when = When::kBefore;
  Holding holding = Holding::kWeight;
  int segment = 0;
  std::int64_t element = 0;  // of tensor_of(), counted around its end
  int bit = 0;               // of the element, counted around its width
  bool operator==(const BitFlip&) const = default;
};

// "rank=1 step=3 when=before of=first_moment segment=2 element=17 bit=30", in any order, all of
// them.
Result<BitFlip> parse_bit_flip(std::string_view text);

// REQUIRES: a rank that holds the segment.
void flip_bit(const runtime::TensorWorkspace& workspace, const BitFlip& flip);

}  // namespace lockstep::train
