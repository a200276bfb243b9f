// A rank's rows of a table that the tensor ranks cut by vocabulary: of the embedding, or of the
// projection to the vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace lockstep::nn {

struct VocabShard {
  std::int64_t first = 0;
  std::int64_t count = 0;    // may be 0
  std::int64_t padding = 0;  // rows behind them that are no tokens
};

// Where `tokens` ([n] of i64) lie in the shard. One that lies elsewhere, or is no token at all, has
// some row of the shard and is marked. Takes 17 bytes a token for a moment and keeps 9.
struct TokenRows {
  at::Tensor row;        // [n], i64 in [0, count), or 0
  at::Tensor elsewhere;  // [n], bool
};
inline TokenRows token_rows(const at::Tensor& tokens, VocabShard shard) {
  const at::Tensor shifted = tokens.sub(shard.first);
  at::Tensor row = shifted.clamp(0, std::max<std::int64_t>(shard.count - 1, 0));
  at::Tensor elsewhere = shifted.ne(row);
  return {std::move(row), std::move(elsewhere)};
}

}  // namespace lockstep::nn
