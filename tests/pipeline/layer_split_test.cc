#include "lockstep/pipeline/layer_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace lockstep::pipeline {
namespace {

using Split = std::vector<int>;

// The rule in words: everybody gets the rounded-up share, and what that is too much is taken back
// one by one.
Split by_hand(int layers, int stages) {
  Split split(static_cast<std::size_t>(stages), (layers + stages - 1) / stages);
  std::vector<std::size_t> order = {split.size() - 1};
  if (stages > 1) order.push_back(0);
  for (std::size_t i = split.size(); i-- > 2;) order.push_back(i - 1);
  const int extra = std::accumulate(split.begin(), split.end(), 0) - layers;
  for (std::size_t i = 0; i < static_cast<std::size_t>(extra); ++i) --split[order[i]];
  return split;
}

// 126 + 2 = 16 x 8: Llama 3 405B.
TEST(LayerSplit, TheEndsHaveALayerLess) {
  EXPECT_EQ(default_layer_split(126, 16), (Split{7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7}));
  EXPECT_EQ(default_layer_split(32, 4), (Split{8, 8, 8, 8}));
  EXPECT_EQ(default_layer_split(31, 4), (Split{8, 8, 8, 7}));
  EXPECT_EQ(default_layer_split(30, 4), (Split{7, 8, 8, 7}));
  EXPECT_EQ(default_layer_split(29, 4), (Split{7, 8, 7, 7}));
  EXPECT_EQ(default_layer_split(6, 4), (Split{1, 2, 2, 1}));
  EXPECT_EQ(default_layer_split(2, 4), (Split{0, 1, 1, 0}));
}

// A split that loses layers trains another model; one that leaves a stage between the ends empty
// has nothing to lower.
TEST(LayerSplit, EveryLayerOnceAndNoStageWithout) {
  for (int layers = 0; layers <= 40; ++layers)
    for (int stages = 1; stages <= layers + 2; ++stages) {
      const Split split = default_layer_split(layers, stages);
      ASSERT_EQ(split, by_hand(layers, stages)) << layers << " over " << stages;
      ASSERT_EQ(std::accumulate(split.begin(), split.end(), 0), layers);
      const auto [least, most] = std::ranges::minmax(split);
      ASSERT_LE(most - least, 1);
      ASSERT_EQ(most == least, short_stages(layers, stages) == 0);
      ASSERT_EQ(std::ranges::count(split, most - 1), short_stages(layers, stages));
      ASSERT_EQ(split.back(), least);
      ASSERT_GE(least, stages <= layers ? 1 : 0);
      for (std::size_t i = 1; i + 1 < split.size(); ++i) ASSERT_GE(split[i], 1);
      for (int stage = 0; stage < stages; ++stage)
        ASSERT_EQ(layers_of_stage(layers, stages, stage), split[static_cast<std::size_t>(stage)]);
    }
}

TEST(LayerSplit, CoordinatesHoldAllTheirStages) {
  for (const Placement placement : {Placement::kLoop, Placement::kV})
    for (int coords = 2; coords <= 7; ++coords)
      for (int chunks = 1; chunks <= 5; ++chunks)
        for (int layers = 0; layers <= 60; ++layers) {
          const Shape shape{.coords = coords, .chunks = chunks};
          const Split split = default_layer_split(layers, shape.stages());
          Split held(static_cast<std::size_t>(coords), 0);
          for (int stage = 0; stage < shape.stages(); ++stage)
            held[static_cast<std::size_t>(coord_of(placement, {stage}, coords).value)] +=
                split[static_cast<std::size_t>(stage)];
          const CoordLayers found = coord_layers(layers, shape, placement);
          const auto at = testing::Message() << layers << " layers, " << coords << " coordinates, "
                                             << chunks << " chunks";
          ASSERT_EQ(found.first, held.front()) << at;
          ASSERT_EQ(found.last, held.back()) << at;
          if (coords > 2) {
            ASSERT_EQ(found.middle, *std::max_element(held.begin() + 1, held.end() - 1)) << at;
          }
        }
}

}  // namespace
}  // namespace lockstep::pipeline
