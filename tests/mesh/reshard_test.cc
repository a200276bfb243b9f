#include "lockstep/mesh/reshard.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/mesh/naive_shard.h"

namespace lockstep::mesh {
namespace {

using Elements = std::vector<std::int64_t>;

std::vector<Elements> naive_shards(const Layout& layout) {
  std::vector<Elements> shards;
  for (std::int32_t r = 0; r < layout.mesh().world(); ++r)
    shards.push_back(naive_shard(layout, Rank{r}));
  return shards;
}

// Executes the copies and checks that no target element is written twice; -1 where none is.
Elements executed(const std::vector<Copy>& copies, const std::vector<Elements>& source,
                  std::size_t target_size) {
  Elements target(target_size, -1);
  for (const Copy& copy : copies) {
    const Elements& held = source.at(static_cast<std::size_t>(copy.source.value));
    EXPECT_FALSE(copy.runs.empty());
    for (const Run& run : copy.runs) {
      EXPECT_GT(run.length, 0);
      for (std::int64_t i = 0; i < run.length; ++i) {
        std::int64_t& element = target.at(static_cast<std::size_t>(run.target + i));
        EXPECT_EQ(element, -1) << "written twice";
        element = held.at(static_cast<std::size_t>(run.source + i));
      }
    }
  }
  return target;
}

// Runs ascend in target, owners ascend, and no two neighbouring runs could be one.
void expect_canonical(const std::vector<Copy>& copies) {
  for (std::size_t c = 0; c < copies.size(); ++c) {
    EXPECT_TRUE(c == 0 || copies[c - 1].source < copies[c].source);
    const auto& runs = copies[c].runs;
    for (std::size_t i = 1; i < runs.size(); ++i) {
      EXPECT_LE(runs[i - 1].target + runs[i - 1].length, runs[i].target);
      EXPECT_FALSE(runs[i - 1].target + runs[i - 1].length == runs[i].target &&
                   runs[i - 1].source + runs[i - 1].length == runs[i].source);
    }
  }
}

TEST(Reshard, CuttingThenReshardingIsCuttingTheOtherWay) {
  Dice dice(31);
  int num_ranges = 0;
  int num_zigzags = 0;
  for (int round = 0; round < 600; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const auto [source, target] = random_layouts(dice);
    const std::vector<Elements> held = naive_shards(source);
    num_ranges += source.spec().range && target.spec().range;
    for (const DimCut& cut : source.spec().cuts) num_zigzags += cut.kind == CutKind::kZigzag;
    for (std::int32_t r = 0; r < target.mesh().world(); ++r) {
      const Elements wanted = naive_shard(target, Rank{r});
      for (Replica replica : {Replica::kNearest, Replica::kFirst}) {
        const auto copies = reshard(source, target, Rank{r}, replica);
        ASSERT_TRUE(copies.ok()) << copies.error().message;
        ASSERT_EQ(executed(*copies, held, wanted.size()), wanted) << "rank " << r;
        expect_canonical(*copies);
      }
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(num_ranges, 30) << "the random layouts must meet the hard cases";
  EXPECT_GT(num_zigzags, 100);
}

TEST(Reshard, ToTheSameLayoutIsOneRunFromOneself) {
  Dice dice(32);
  for (int round = 0; round < 200; ++round) {
    const Layout layout = random_layouts(dice).first;
    for (std::int32_t r = 0; r < layout.mesh().world(); ++r) {
      const std::int64_t size = layout.shard(Rank{r}).size();
      const auto copies = reshard(layout, layout, Rank{r});
      std::vector<Copy> wanted;
      if (size > 0) wanted.push_back({Rank{r}, {{0, 0, size}}});
      ASSERT_EQ(*copies, wanted) << "rank " << r;
    }
  }
}

TEST(Reshard, FirstReplicaHasCoordinateZeroOnEveryReplicaAxis) {
  Dice dice(33);
  for (int round = 0; round < 200; ++round) {
    const auto [source, target] = random_layouts(dice);
    for (std::int32_t r = 0; r < target.mesh().world(); ++r) {
      const auto copies = reshard(source, target, Rank{r}, Replica::kFirst);
      for (const Copy& copy : *copies)
        ASSERT_EQ(source.mesh().coord(copy.source, source.replica_axes()), Coord{0});
    }
  }
}

TEST(Reshard, ReadersSpreadOverReplicas) {
  const Layout source = *Layout::create(*Mesh::create({.tp = 2, .dp = 4}),
                                        {.shape = {8}, .cuts = {{0, Axis::kTensor}}});
  const Layout target = *Layout::create(*Mesh::create({.dp = 64}), {.shape = {8}});
  std::map<Rank, int> num_readers;
  for (std::int32_t r = 8; r < 64; ++r) {
    const auto copies = reshard(source, target, Rank{r});
    for (const Copy& copy : *copies) ++num_readers[copy.source];
  }
  EXPECT_EQ(num_readers.size(), 8u);
  for (const auto& [rank, readers] : num_readers) EXPECT_EQ(readers, 56 / 4) << rank.value;
}

TEST(Reshard, CutsRunsWhereRangesChangeOwner) {
  const Mesh two = *Mesh::create({.dp = 2});
  const Mesh three = *Mesh::create({.dp = 3});
  const Layout source = *Layout::create(two, {.shape = {3, 4}, .range = RangeCut{kDp}});
  const Layout target = *Layout::create(three, {.shape = {3, 4}, .range = RangeCut{kDp}});
  EXPECT_EQ(*reshard(source, target, Rank{1}),
            (std::vector<Copy>{{Rank{0}, {{4, 0, 2}}}, {Rank{1}, {{0, 2, 2}}}}));
}

TEST(Reshard, RefusesDifferentShapes) {
  const Layout a = *Layout::create(Mesh(), {.shape = {4, 2}});
  const Layout b = *Layout::create(Mesh(), {.shape = {8}});
  const auto refused = reshard(a, b, Rank{0});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kBadSharding);
  EXPECT_EQ(refused.error().message, "a tensor of shape [4, 2] can not be resharded to shape [8]");
}

// A feed-forward matrix of a 405B model moves between two worlds of a million ranks. A walk over
// ranks or over the tensor's 872 million elements would not come back within the test's patience.
TEST(Reshard, CostsNothingPerRankOfTheWorld) {
  const Mesh from = *Mesh::create({.tp = 8, .cp = 4, .pp = 16, .dp = 2048, .dp_shard = 64});
  const Mesh to = *Mesh::create({.tp = 16, .cp = 2, .pp = 8, .dp = 4096, .dp_shard = 128});
  const std::vector<std::int64_t> shape = {16384, 53248};
  const Layout source = *Layout::create(from, {.shape = shape,
                                               .cuts = {{1, Axis::kTensor}},
                                               .range = RangeCut{kDenseShard},
                                               .pp = Coord{3}});
  const Layout target = *Layout::create(to, {.shape = shape,
                                             .cuts = {{0, Axis::kTensor}},
                                             .range = RangeCut{kDenseShard},
                                             .pp = Coord{7}});
  Coords coords;
  coords[Axis::kTensor] = Coord{5};
  coords[Axis::kContext] = Coord{1};
  coords[Axis::kPipeline] = Coord{7};
  coords[Axis::kDataShard] = Coord{77};
  coords[Axis::kDataReplicate] = Coord{31};
  for (int repeat = 0; repeat < 100; ++repeat) {
    const auto copies = reshard(source, target, to.rank(coords));
    std::int64_t elements = 0;
    for (const Copy& copy : *copies)
      for (const auto& run : copy.runs) elements += run.length;
    ASSERT_EQ(elements, target.shard(to.rank(coords)).size());
    ASSERT_EQ(elements, 1024 * 53248 / 256);
    ASSERT_LE(copies->size(), 16u);
  }
}

}  // namespace
}  // namespace lockstep::mesh
