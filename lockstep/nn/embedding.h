// The token embedding: rows of a table, and their gradient added up token by token. Tensor ranks cut
// the table by vocabulary; a rank brings zeros for tokens of others, and the sum is exact.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/arch/arch.h"
#include "lockstep/arch/flat_layout.h"
#include "lockstep/nn/tensor_group.h"
#include "lockstep/nn/vocab_shard.h"

namespace lockstep::nn {

// Immutable; any thread where the group is of one rank. T tokens, P of them on the path (block.h).
class Embedding {
 public:
  // REQUIRES: the group's size divides the vocabulary.
  Embedding(const arch::ModelConfig& config, const arch::Unit& unit, const arch::FlatLayout& flat,
            TensorGroup group = {});

  // [P, h] from `tokens`, [batch, seq] of i64. `params` is the unit's flat buffer.
  at::Tensor forward(const at::Tensor& params, const at::Tensor& tokens) const;

  // Writes (is_first) or adds the table's gradient to `grads`, the unit's flat gradient buffer. Takes
  // `d_out` over, which a group may overwrite.
  void weight_grad(const at::Tensor& tokens, at::Tensor d_out, const at::Tensor& grads,
                   bool is_first) const;

 private:
  TensorGroup group_;
  VocabShard shard_;
  std::int64_t hidden_;
  arch::FlatRange table_;
};

}  // namespace lockstep::nn
