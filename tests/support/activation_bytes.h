// Bytes of activations that the forward pass of a GPT block keeps for its backward pass, in closed
// form. What our own blocks keep, tensor by tensor, is in parts/unit_passes.h.
#pragma once

#include <cstdint>

namespace lockstep::model {

enum class Recompute : std::uint8_t {
  kNone,
  kAttention,  // scores, softmax and its dropout ("selective"); flash attention does this anyway
  kBlock,      // everything but the block's input, itself shared out with sequence parallelism
};

struct BlockShape {
  std::int64_t seq = 0;
  std::int64_t batch = 0;  // sequences in a microbatch
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
};

// A GPT block in 16 bits with dropout and stored scores: Korthikanti et al., MLSys 2023 (arXiv
// 2205.05198), equations 1 to 6. `tp` ranks share it; with `sequence_parallel` also what tensor
// parallelism leaves whole. REQUIRES: tp >= 1.
double gpt_block_bytes(const BlockShape& shape, std::int64_t tp, bool sequence_parallel,
                       Recompute recompute);

}  // namespace lockstep::model
