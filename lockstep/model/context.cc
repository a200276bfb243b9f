#include "lockstep/model/context.h"

#include "lockstep/base/check.h"

namespace lockstep::model {
namespace {

bool is_seen(const AttentionBlock& block, std::int64_t window) {
  const PositionRun &q = block.queries, &k = block.keys;
  const std::int64_t first_seen = keys_seen(q.position, window).begin;
  return k.position < q.position + q.count && first_seen < k.position + k.count;
}

}  // namespace

std::vector<PositionRun> position_runs(ContextPlace place, std::int64_t seq) {
  if (place.cp == 1) return {{0, 0, seq}};
  LS_CHECK(seq % 2 == 0, seq, " tokens of a sequence in two pieces");
  const std::int64_t chunk = seq / 2, late = 2 * place.cp - 1 - place.coord;
  return {{0, place.coord * chunk, chunk}, {chunk, late * chunk, chunk}};
}

std::vector<AttentionBlock> attention_blocks(ContextPlace place, std::int64_t other,
                                             std::int64_t seq, std::int64_t window) {
  std::vector<AttentionBlock> own, rest;
  for (const PositionRun& queries : position_runs(place, seq))
    for (const PositionRun& keys : position_runs({place.cp, other}, seq)) {
      const AttentionBlock block = {queries, keys};
      if (queries == keys)
        own.push_back(block);
      else if (is_seen(block, window))
        rest.push_back(block);
    }
  own.insert(own.end(), rest.begin(), rest.end());
  return own;
}

std::int64_t pairs_seen(const std::vector<AttentionBlock>& blocks, std::int64_t window) {
  std::int64_t pairs = 0;
  for (const AttentionBlock& block : blocks)
    for (std::int64_t i = 0; i < block.queries.count; ++i) {
      const KeyRange seen = keys_seen(block.queries.position + i, window);
      pairs += KeyRange{std::max(seen.begin, block.keys.position),
                        std::min(seen.end, block.keys.position + block.keys.count)}
                   .size();
    }
  return pairs;
}

std::vector<std::int64_t> context_distances(std::int64_t cp, std::int64_t seq,
                                            std::int64_t window) {
  std::vector<std::int64_t> distances;
  for (std::int64_t d = 1; d < cp; ++d)
    for (std::int64_t rank = 0; rank < cp; ++rank)
      if (!attention_blocks({cp, rank}, (rank + cp - d) % cp, seq, window).empty()) {
        distances.push_back(d);
        break;
      }
  return distances;
}

}  // namespace lockstep::model
