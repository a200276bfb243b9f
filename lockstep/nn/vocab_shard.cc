#include "lockstep/nn/vocab_shard.h"

#include "lockstep/base/check.h"

namespace lockstep::nn {

VocabShard VocabShard::of(std::int64_t vocab, const TensorGroup& group) {
  LS_CHECK(vocab % group.size() == 0, "a vocabulary of ", vocab, " over ", group.size(),
           " tensor ranks");
  const std::int64_t count = vocab / group.size();
  return {group.index() * count, count};
}

TokenRows::TokenRows(const at::Tensor& tokens, VocabShard shard) {
  const at::Tensor shifted = tokens.sub(shard.first);
  row = shifted.clamp(0, shard.count - 1);
  elsewhere = shifted.ne(row);
}

}  // namespace lockstep::nn
