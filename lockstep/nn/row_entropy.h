// Cross-entropy of rows of logits that lie whole in one rank's memory, in two passes over a row,
// which stays in a core's cache between them, where LibTorch's operators make seven over memory. A
// row's bits depend on nothing but the row. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/base/exact_sum.h"

namespace lockstep::nn {

inline constexpr std::int64_t kIgnored = -100;  // a label that takes no part in the loss

// `logits` is [n, V], f32 or f64 and contiguous on a CPU, `labels` [n] of i64. Both add the losses
// (natural logarithm) of valid tokens to `loss` and need 8 bytes a token for a moment.
void add_row_losses(const at::Tensor& logits, const at::Tensor& labels, ExactSum& loss);
// The same, and writes the gradient of (sum of losses x seed) with respect to the logits into
// `grad`, rounded once to its type: the logits' own, then `grad` may be `logits`, or bf16. Uses the
// logits up.
void add_row_losses(const at::Tensor& logits, const at::Tensor& labels, double seed,
                    const at::Tensor& grad, ExactSum& loss);

}  // namespace lockstep::nn
