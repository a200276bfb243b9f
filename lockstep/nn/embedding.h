// The token embedding: rows of a table, and their gradient added up token by token.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/arch/arch.h"
#include "lockstep/arch/flat_layout.h"

namespace lockstep::nn {

// Immutable; any thread.
class Embedding {
 public:
  Embedding(const arch::ModelConfig& config, const arch::Unit& unit, const arch::FlatLayout& flat);

  // [T, h] from `tokens`, [batch, seq] of i64. `params` is the unit's flat buffer.
  at::Tensor forward(const at::Tensor& params, const at::Tensor& tokens) const;

  // Writes (is_first) or adds the table's gradient to `grads`, the unit's flat gradient buffer.
  void weight_grad(const at::Tensor& tokens, at::Tensor d_out, const at::Tensor& grads,
                   bool is_first) const;

 private:
  std::int64_t vocab_, hidden_;
  arch::FlatRange table_;
};

}  // namespace lockstep::nn
