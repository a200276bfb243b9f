#include "lockstep/cost/analytic/stage_split.h"

#include <gtest/gtest.h>

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

// The head is where programs have it, all layers are somewhere, and in place of a layer embedding
// and head count once each, wherever they are.
TEST(StageSplit, HoldsAllLayersAndTheHeadOnItsRank) {
  Rig rig("llama3-8b", "h100:8");
  PriceRequest& r = rig.request;
  ModelShape shape = *r.shape;
  r.shape = &shape;
  for (const pipeline::CatalogRow& row : pipeline::catalog())
    for (const int p : {2, 4, 8})
      for (const int less : {0, 1, 2}) {
        const int stages = p * (row.chunks == 0 ? 3 : row.chunks);
        shape.layers = 5 * stages - less;
        r.schedule = &row;
        r.pp = p;
        r.chunks = stages / p;
        const int head = pipeline::coord_of(row.placement, {stages - 1}, p).value;
        double sum = 0;
        for (int rank = 0; rank < p; ++rank) {
          const double layers = layers_on(r, split_layers(r), rank);
          const int taken = (less > 0 && rank == head ? 1 : 0) + (less > 1 && rank == 0 ? 1 : 0);
          EXPECT_EQ(layers, 5 * stages / p - taken) << row.name << " pp " << p << " rank " << rank;
          EXPECT_EQ(holds_head(r, rank), rank == head) << row.name;
          sum += layers;
        }
        EXPECT_EQ(sum, shape.layers) << row.name;
      }
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
  for (double stage = 0; stage < 8; ++stage) EXPECT_EQ(in_flight(r, stage), 8 - stage);
  r.schedule = &pipeline::row("interleaved");
  for (const double v : {2.0, 4.0}) {
    r.chunks = v;
    EXPECT_DOUBLE_EQ(in_flight(r, 0), 8 * (1 + 7 / (8 * v)));
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
