#include "lockstep/cost/analytic/stage_split.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/pipeline/layer_split.h"
#include "tests/cost/analytic/requests.h"

namespace lockstep::cost {
namespace {

// Every split holds all layers.
TEST(StageSplit, EvenWhereItDividesAndOneLessAtTheEnds) {
  Rig rig("llama3-405b", "h100:16");
  rig.request.pp = 16;
  rig.request.chunks = 8;  // 126 + 2 = 16 x 8
  const StageSplit split = split_layers(rig.request);
  EXPECT_EQ(split.first + 14 * split.middle + split.last, 126);
  EXPECT_EQ(split.first, 7);
  EXPECT_EQ(split.middle, 8);
  rig.request.pp = 9;
  rig.request.chunks = 7;
  EXPECT_EQ(split_layers(rig.request).last, 14);
}

// The head is where programs have it, and the ends and the fullest rank between them hold what the
// stages of a run do.
TEST(StageSplit, IsThatOfARunOnEverySchedule) {
  Rig rig("llama3-8b", "h100:8");
  PriceRequest& r = rig.request;
  for (const pipeline::CatalogRow& row : pipeline::catalog())
    for (int p = 2; p <= 8; ++p)
      for (int chunks = std::max(1, row.chunks); chunks <= (row.chunks > 0 ? row.chunks : 4);
           ++chunks)
        for (int layers = p * chunks; layers <= 40; ++layers) {
          rig.shape.layers = layers;
          r.schedule = &row, r.pp = p, r.chunks = chunks;
          std::vector<double> held(static_cast<std::size_t>(p), 0);
          const int stages = p * chunks;
          const std::vector<int> run = pipeline::default_layer_split(layers, stages);
          const auto rank_of = [&](int stage) {
            return static_cast<std::size_t>(pipeline::coord_of(row.placement, {stage}, p).value);
          };
          for (int stage = 0; stage < stages; ++stage)
            held[rank_of(stage)] += run[static_cast<std::size_t>(stage)];
          const StageSplit split = split_layers(r);
          const auto at = testing::Message() << row.name << " pp " << p << " chunks " << chunks
                                             << ", " << layers << " layers";
          ASSERT_EQ(split.first, held.front()) << at;
          ASSERT_EQ(split.last, held.back()) << at;
          if (p > 2) {
            ASSERT_EQ(split.middle, *std::max_element(held.begin() + 1, held.end() - 1)) << at;
          }
          ASSERT_EQ(most_layers(r), std::ranges::max(held)) << at;
          for (int rank = 0; rank < p; ++rank)
            ASSERT_EQ(holds_head(r, rank), static_cast<std::size_t>(rank) == rank_of(stages - 1));
        }
}

TEST(StageSplit, ARequestMaySayWhatItsEndsHold) {
  Rig rig("llama3-8b", "h100:8");
  rig.request.pp = 4;
  rig.request.first_layers = 7, rig.request.last_layers = 5;
  const StageSplit split = split_layers(rig.request);
  EXPECT_EQ(split.first, 7);
  EXPECT_EQ(split.middle, 10);
  EXPECT_EQ(split.last, 5);
}

TEST(StageSplit, DenseLayersLieOnTheFirstRank) {
  Rig rig("deepseek-v3", "h800:16");
  rig.request.pp = 1;
  EXPECT_EQ(expert_layers_on(rig.request, split_layers(rig.request), 0), 58);
}

// Anchor A17 (Narayanan; Korthikanti 4.2.3): min(m, p - r), and interleaved p (1 + (p - 1) / (p v))
// on rank 0.
TEST(StageSplit, MicrobatchesInFlight) {
  Rig rig("llama3-8b", "h100:8");
  PriceRequest& r = rig.request;
  r.pp = 8;
  r.global_batch = 64;
  for (int stage = 0; stage < 8; ++stage) EXPECT_EQ(in_flight(r, stage), 8 - stage);
  r.schedule = &pipeline::row("interleaved");
  for (const int v : {2, 4}) {
    r.chunks = v;
    EXPECT_DOUBLE_EQ(in_flight(r, 0), 8 * (1 + 7.0 / (8 * v)));
  }
  r.global_batch = 2;
  r.schedule = &pipeline::row("1f1b");
  EXPECT_EQ(in_flight(r, 0), 2);
}

// Anchor A16: makespans (m + p - 1)(F + B) and m (F + B) + (p - 1)(F + B) / v.
TEST(StageSplit, Bubbles) {
  Rig rig("llama3-8b", "h100:8");
  PriceRequest& r = rig.request;
  r.pp = 4;
  EXPECT_EQ(bubble_seconds(r, 1, 2), 3 * 3);
  r.schedule = &pipeline::row("interleaved");
  r.chunks = 3;
  EXPECT_EQ(bubble_seconds(r, 1, 2), 3);
}

}  // namespace
}  // namespace lockstep::cost
