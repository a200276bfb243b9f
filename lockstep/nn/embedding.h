// The token embedding: rows of a table, and their gradient added up token by token. Tensor ranks
// cut the table by vocabulary; a rank brings zeros for tokens of others, and the sum is exact.
// Where positions are learned, the rows of a second table, which every rank holds, are added on the
// path. T tokens, P of them on the path (tensor_group.h). Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/nn/tensor_group.h"
#include "lockstep/nn/vocab_shard.h"

namespace lockstep::nn {

// [T, h]: rows of `table`, which holds `shard` of the vocabulary. `tokens` is [batch, seq] of i64.
at::Tensor lookup(const at::Tensor& table, const at::Tensor& tokens, VocabShard shard,
                  const TensorGroup& group);
// Adds the rows `d`, [T, h], to the gradient of the table; overwrites those of other ranks' tokens.
void add_lookup_grads(const at::Tensor& table, const at::Tensor& tokens, const at::Tensor& d,
                      VocabShard shard, const TensorGroup& group);

// Adds to `rows`, [P, h] of sequences of which `seq` tokens are here, their positions' rows of
// `table`.
void add_positions(const at::Tensor& table, const at::Tensor& rows, std::int64_t seq,
                   const TensorGroup& group, model::ContextPlace place);
// Adds the rows `d` to the gradient of the table, under sequence parallelism a summand of it.
void add_position_grads(const at::Tensor& table, const at::Tensor& d, std::int64_t seq,
                        const TensorGroup& group, model::ContextPlace place);

}  // namespace lockstep::nn
