// What the kernel of a part takes from memory besides its outputs: the lower half of the table of
// kernels, whose upper half, code, is in nn. Of LibTorch's kernels on a CPU exact for f32 and f64;
// in bf16, oneDNN products take scratch of their own that has no closed form. Of a device's, what
// operators are given and make and what flash attention's gradient takes inside; not what its
// forward takes where it splits the keys of few heads over idle multiprocessors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/parts/place.h"

namespace lockstep::parts {

struct Step {
  enum What : std::uint8_t { kOutput, kTake, kGive };
  What what = kOutput;
  std::size_t output = 0;      // kOutput: which; takes memory only if it has its own
  std::string_view name = {};  // of scratch
  std::int64_t bytes = 0;      // of scratch; may be 0
};

// Whether CUDA's flash attention takes heads of this size.
constexpr bool is_flash_head(std::int64_t head_dim) { return head_dim % 8 == 0 && head_dim <= 256; }

// Blocks of equally many rows, into which a device divides the rows of experts for its products:
// one of each expert, and more of those that have more rows.
struct ExpertBlocks {
  ExpertBlocks(std::int64_t num_experts, std::int64_t num_rows)
      : experts(num_experts),
        rows(num_rows),
        size((rows + experts - 1) / experts),
        more((rows - 1) / size) {}
  std::int64_t all() const { return experts + more; }
  // Of `more`: for each a matrix is copied or made, so not for more than an eighth of the experts.
  std::int64_t at_once() const { return std::min((experts + 7) / 8, more); }

  std::int64_t experts, rows, size, more;
};

// In order. Every output appears once.
std::vector<Step> kernel_steps(const Part& part, const Pass& pass, const Values& values,
                               const Sizes& sizes);

}  // namespace lockstep::parts
