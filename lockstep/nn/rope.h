// Rotary positions (Su et al., arXiv 2104.09864) in the rotate-half form of the llama family:
// element i of a head is paired with element i + head_dim / 2. With llama-3 scaling, low
// frequencies are stretched (Llama 3 report, arXiv 2407.21783, section 3.4.3; the rule is Hugging
// Face's "llama3"). A model whose positions are not rotary has no tables, and turning does nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/model/context.h"
#include "lockstep/model/model_config.h"

namespace lockstep::nn {

// Immutable; any thread.
class Rope {
 public:
  // Tables of cosine and sine for the `seq` positions that are at `place`, by row, computed in f64,
  // kept in `type`, or in f32 if that is narrower: 2 x seq x head_dim / 2 elements.
  Rope(const model::ModelConfig& config, std::int64_t seq, at::ScalarType type, at::Device device,
       model::ContextPlace place = {});

  // Rotates heads [0, heads) of every token in place. `x` is [batch x seq, width] with heads of
  // head_dim side by side from column 0. On a CPU it needs half of the rotated part beside it for
  // a moment; where that is narrower than f32, one and a half of a few rows in f32. Rounds once.
  void rotate(const at::Tensor& x, std::int64_t heads) const;
  // The same for positions of rows [first, first + count) alone; views of the tables.
  Rope rows(std::int64_t first, std::int64_t count) const;
  // The inverse rotation, which is also its gradient.
  void rotate_back(const at::Tensor& x, std::int64_t heads) const;

 private:
  void apply(const at::Tensor& x, std::int64_t heads, double sign) const;

  std::int64_t head_dim_;
  at::Tensor cos_, sin_;  // [seq, 1, head_dim / 2], or undefined
};

}  // namespace lockstep::nn
