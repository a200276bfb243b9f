// Bytes of activations that the forward pass of one block keeps for its backward pass, in closed
// form. The runtime counts what it really keeps; these are what plans start from and what the
// count is checked against.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/arch/arch.h"

namespace lockstep::arch {

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

// One tensor that a block with flash attention keeps, per token.
struct SavedTensor {
  std::string name;
  double bytes = 0.0;
  bool cheap = false;   // rebuilt by one elementwise pass: the first to drop
  bool divided = true;  // by tp even without sequence parallelism
  bool operator==(const SavedTensor&) const = default;
};

// What a block of the llama family (SwiGLU, norms before, no dropout) keeps per token, in the order
// of the forward pass. `width` is bytes per element, 2 for bf16; the softmax's log-sum-exp is f32.
// REQUIRES: a unit of kind kBlock with attention and a plain MLP.
std::vector<SavedTensor> saved_tensors(const ModelConfig& config, const Unit& block, double width);

}  // namespace lockstep::arch
