// The token embedding: rows of a table, and their gradient added up token by token. Tensor ranks
// cut the table by vocabulary; a rank brings zeros for tokens of others, and the sum is exact.
// Where positions are learned, the rows of a second table, which every rank holds, are added on the
// path.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/model/arch.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/nn/tensor_group.h"
#include "lockstep/nn/vocab_shard.h"

namespace lockstep::nn {

// Immutable; any thread where the group is of one rank. T tokens, P of them on the path (block.h).
class Embedding {
 public:
  // REQUIRES: the group's size divides the vocabulary.
  Embedding(const model::ModelConfig& config, const model::Unit& unit,
            const model::FlatLayout& flat, TensorGroup group = {});

  // [P, h] from `tokens`, [batch, seq] of i64. `params` is the unit's flat buffer.
  at::Tensor forward(const at::Tensor& params, const at::Tensor& tokens) const;

  // Writes (is_first) or adds the tables' gradients to `grads`, the unit's flat gradient buffer;
  // that of positions is a summand over the group under sequence parallelism. Takes `d_out` over,
  // which a group may overwrite.
  void weight_grad(const at::Tensor& tokens, at::Tensor d_out, const at::Tensor& grads,
                   bool is_first) const;

 private:
  void add_positions(const at::Tensor& params, const at::Tensor& out, std::int64_t seq) const;
  void add_position_grads(const at::Tensor& grads, const at::Tensor& d_out, std::int64_t seq,
                          bool is_first) const;

  TensorGroup group_;
  VocabShard shard_;
  std::int64_t hidden_;
  model::FlatRange table_;
  model::FlatRange positions_;  // empty where they are not learned
};

}  // namespace lockstep::nn
