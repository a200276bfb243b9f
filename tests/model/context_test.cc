#include "lockstep/model/context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

namespace lockstep::model {
namespace {

using Pairs = std::multiset<std::pair<std::int64_t, std::int64_t>>;

// Positions of a query and a key that it sees, by definition.
Pairs pairs_by_definition(std::int64_t seq, std::int64_t window) {
  Pairs pairs;
  for (std::int64_t query = 0; query < seq; ++query)
    for (std::int64_t key = 0; key <= query; ++key)
      if (window == 0 || query - key < window) pairs.emplace(query, key);
  return pairs;
}

void add_pairs(const AttentionBlock& block, std::int64_t window, Pairs& pairs) {
  for (std::int64_t i = 0; i < block.queries.count; ++i) {
    const std::int64_t query = block.queries.position + i;
    const KeyRange seen = keys_seen(query, window);
    for (std::int64_t j = 0; j < block.keys.count; ++j) {
      const std::int64_t key = block.keys.position + j;
      if (key >= seen.begin && key < seen.end) pairs.emplace(query, key);
    }
  }
}

TEST(Context, BlocksOfAllRanksAreAllPairsOnce) {
  for (const std::int64_t cp : {1, 2, 3, 4, 8})
    for (const std::int64_t chunk : {1, 2, 5})
      for (const std::int64_t window : {0, 1, 2, 3, 7, 11, 40}) {
        const std::int64_t seq = 2 * chunk;  // of a rank
        Pairs found;
        std::int64_t counted = 0;
        for (std::int64_t rank = 0; rank < cp; ++rank)
          for (std::int64_t other = 0; other < cp; ++other) {
            const auto blocks = attention_blocks({cp, rank}, other, seq, window);
            for (const AttentionBlock& block : blocks) add_pairs(block, window, found);
            counted += pairs_seen(blocks, window);
          }
        EXPECT_EQ(found, pairs_by_definition(seq * cp, window))
            << cp << " ranks, chunks of " << chunk << ", window " << window;
        EXPECT_EQ(counted, std::ssize(found));
      }
}

TEST(Context, EveryPositionIsOnOneRank) {
  for (const std::int64_t cp : {1, 2, 3, 8}) {
    std::multiset<std::int64_t> found, wanted;
    for (std::int64_t rank = 0; rank < cp; ++rank)
      for (const PositionRun& run : position_runs({cp, rank}, 6))
        for (std::int64_t i = 0; i < run.count; ++i) found.insert(run.position + i);
    for (std::int64_t i = 0; i < 6 * cp; ++i) wanted.insert(i);
    EXPECT_EQ(found, wanted);
  }
}

// Busiest over mean: at most one key of every query more than the mean.
TEST(Context, RanksHaveAsManyPairs) {
  for (const std::int64_t cp : {2, 4, 8, 16}) {
    const std::int64_t seq = 2 * 512;
    std::int64_t most = 0, all = 0;
    for (std::int64_t rank = 0; rank < cp; ++rank) {
      std::int64_t own = 0;
      for (std::int64_t other = 0; other < cp; ++other)
        own += pairs_seen(attention_blocks({cp, rank}, other, seq, 0), 0);
      most = std::max(most, own);
      all += own;
    }
    EXPECT_EQ(most * cp, all);
  }
}

TEST(Context, AQueryHasSeenAKeyBeforeOtherRanksBlocksCome) {
  for (const std::int64_t window : {0, 1, 3})
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      const auto own = attention_blocks({4, rank}, rank, 8, window);
      EXPECT_EQ(own[0].queries, own[0].keys);
      EXPECT_EQ(own[1].queries, own[1].keys);
    }
}

TEST(Context, DistancesThatNoWindowReachesAreLeftOut) {
  using Distances = std::vector<std::int64_t>;
  EXPECT_EQ(context_distances(1, 8, 0), Distances{});
  EXPECT_EQ(context_distances(4, 8, 0), (Distances{1, 2, 3}));
  EXPECT_EQ(context_distances(8, 8, 5), (Distances{1, 7}));  // neighbours, early and late chunks
  EXPECT_EQ(context_distances(8, 8, 6), (Distances{1, 2, 6, 7}));
  EXPECT_EQ(context_distances(4, 8, 1), Distances{});
}

}  // namespace
}  // namespace lockstep::model
