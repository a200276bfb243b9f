#include "lockstep/mesh/layout.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/mesh/naive_shard.h"

namespace lockstep::mesh {
namespace {

// The elements of a Shard, read off its boxes.
std::vector<std::int64_t> listed(const Layout& layout, const Shard& shard) {
  if (shard.boxes.empty()) return {};
  std::vector<std::int64_t> local(static_cast<std::size_t>(layout.local_elements()), -1);
  for (const Box& box : shard.boxes) {
    std::int64_t count = 1;
    for (std::int64_t extent : box.extent) count *= extent;
    for (std::int64_t k = 0; k < count; ++k) {
      std::int64_t rest = k;
      std::int64_t global = 0;
      std::int64_t at = 0;
      std::int64_t global_step = 1;
      std::int64_t step = 1;
      for (std::size_t dim = box.extent.size(); dim-- > 0;) {
        const std::int64_t i = rest % box.extent[dim];
        rest /= box.extent[dim];
        global += (box.begin[dim] + i) * global_step;
        at += (box.local_begin[dim] + i) * step;
        global_step *= layout.spec().shape[dim];
        step *= layout.local_shape()[dim];
      }
      EXPECT_EQ(local.at(static_cast<std::size_t>(at)), -1) << "held twice";
      local[static_cast<std::size_t>(at)] = global;
    }
  }
  return {local.begin() + shard.begin, local.begin() + shard.end};
}

TEST(Layout, ShardsAgreeWithAskingElementByElement) {
  Dice dice(21);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const Layout layout = random_layouts(dice).first;
    for (std::int32_t r = 0; r < layout.mesh().world(); ++r) {
      const Shard shard = layout.shard(Rank{r});
      ASSERT_EQ(listed(layout, shard), naive_shard(layout, Rank{r})) << "rank " << r;
    }
  }
}

TEST(Layout, ReplicasHoldTheSameAndTogetherTheyHoldEverythingOnce) {
  Dice dice(22);
  for (int round = 0; round < 200; ++round) {
    const Layout layout = random_layouts(dice).first;
    const Mesh& mesh = layout.mesh();
    std::int64_t elements = 1;
    for (std::int64_t size : layout.spec().shape) elements *= size;
    std::vector<int> held(static_cast<std::size_t>(elements), 0);
    for (std::int32_t r = 0; r < mesh.world(); ++r) {
      const Group replicas = mesh.group(Rank{r}, layout.replica_axes());
      ASSERT_EQ(layout.shard(Rank{r}), layout.shard(replicas.rank_at(0)));
      if (replicas.rank_at(0) != Rank{r}) continue;
      for (std::int64_t id : naive_shard(layout, Rank{r})) ++held[static_cast<std::size_t>(id)];
    }
    ASSERT_EQ(std::ranges::count(held, 1), elements);
  }
}

TEST(Layout, ZigzagGivesBothEndsOfTheSequence) {
  const Mesh mesh = *Mesh::create({.cp = 2});
  const Layout layout =
      *Layout::create(mesh, {.shape = {3, 16}, .cuts = {{1, Axis::kContext, CutKind::kZigzag}}});
  EXPECT_EQ(std::vector(layout.local_shape().begin(), layout.local_shape().end()),
            (std::vector<std::int64_t>{3, 8}));
  const Shard shard = layout.shard(Rank{1});
  ASSERT_EQ(shard.boxes.size(), 2u);
  EXPECT_EQ(shard.boxes[0], (Box{{0, 4}, {3, 4}, {0, 0}}));
  EXPECT_EQ(shard.boxes[1], (Box{{0, 8}, {3, 4}, {0, 4}}));
  EXPECT_EQ(layout.shard(Rank{0}).boxes[1].begin[1], 12);
}

TEST(Layout, RangesBeyondTheBoxHoldNothing) {
  const Mesh mesh = *Mesh::create({.dp = 4});
  const Layout layout =
      *Layout::create(mesh, {.shape = {10}, .range = RangeCut{.axes = kDp, .width = 8}});
  const auto bounds = [&](std::int32_t rank) {
    const Shard shard = layout.shard(Rank{rank});
    return std::pair(shard.begin, shard.end);
  };
  EXPECT_EQ(bounds(0), std::pair(0L, 8L));
  EXPECT_EQ(bounds(1), std::pair(8L, 10L));
  EXPECT_EQ(bounds(2), std::pair(10L, 10L));
  EXPECT_EQ(bounds(3), std::pair(10L, 10L));
}

TEST(Layout, RangeOffsetPlacesTheBoxInsideAFlatBuffer) {
  const Mesh mesh = *Mesh::create({.dp = 4});
  const Layout layout = *Layout::create(
      mesh, {.shape = {10}, .range = RangeCut{.axes = kDp, .width = 8, .offset = 12}});
  EXPECT_EQ(layout.shard(Rank{0}).size(), 0);
  EXPECT_EQ(layout.shard(Rank{1}).size(), 4);  // buffer elements 12..15
  EXPECT_EQ(layout.shard(Rank{2}).size(), 6);  // buffer elements 16..21
  EXPECT_EQ(layout.shard(Rank{2}).begin, 4);
  EXPECT_EQ(layout.shard(Rank{3}).size(), 0);
}

struct Refusal {
  LayoutSpec spec;
  Code code;
  const char* message;
  const char* help;
};

void expect_refused(const Mesh& mesh, const Refusal& row) {
  const auto refused = Layout::create(mesh, row.spec);
  ASSERT_FALSE(refused.ok()) << row.message;
  EXPECT_EQ(refused.error().code, row.code);
  EXPECT_EQ(refused.error().message, row.message);
  EXPECT_EQ(refused.error().help, row.help);
}

const Mesh kMesh = *Mesh::create({.tp = 4, .cp = 2, .pp = 2, .dp = 4});

TEST(Layout, RefusesADegreeThatDoesNotDivide) {
  expect_refused(kMesh, {{.shape = {8, 10}, .cuts = {{1, Axis::kTensor}}},
                         Code::kDoesNotDivide,
                         "dim 1 of shape [8, 10] is not divisible by tp = 4",
                         "the nearest values of tp that fit: 2 or 5"});
  expect_refused(kMesh, {{.shape = {6}, .cuts = {{0, Axis::kContext, CutKind::kZigzag}}},
                         Code::kDoesNotDivide,
                         "dim 0 of shape [6] is not divisible by 2 x cp = 2 x 2",
                         "the nearest values of cp that fit: 1 or 3"});
  expect_refused(kMesh, {{.shape = {7}, .cuts = {{0, Axis::kContext, CutKind::kZigzag}}},
                         Code::kDoesNotDivide,
                         "dim 0 of shape [7] is not divisible by 2 x cp = 2 x 2",
                         "a zigzag cut needs an even size"});
}

TEST(Layout, RefusesAnAxisOrADimUsedTwice) {
  const char* once = "an axis may cut one dim, or the range, or choose the pp coordinate";
  expect_refused(kMesh, {{.shape = {8, 8}, .cuts = {{0, Axis::kTensor}, {1, Axis::kTensor}}},
                         Code::kBadSharding,
                         "axis tp cuts the tensor twice",
                         once});
  expect_refused(kMesh, {{.shape = {8}, .cuts = {{0, Axis::kContext}}, .range = RangeCut{kData}},
                         Code::kBadSharding,
                         "axis cp cuts the tensor twice",
                         once});
  expect_refused(kMesh, {{.shape = {8}, .cuts = {{0, Axis::kPipeline}}, .pp = Coord{1}},
                         Code::kBadSharding,
                         "axis pp cuts the tensor twice",
                         once});
  expect_refused(kMesh, {{.shape = {8}, .cuts = {{0, Axis::kTensor}, {0, Axis::kContext}}},
                         Code::kBadSharding,
                         "dim 0 is cut twice, by tp and by cp",
                         "cut it once, by tp+cp"});
  expect_refused(kMesh, {{.shape = {8, 8}, .cuts = {{0, Axis::kTensor}, {1, Axis::kExpert}}},
                         Code::kBadSharding,
                         "axes tp+ep mix the dense and the expert view",
                         "cut a dense tensor by tp, cp, pp and dp, an expert's by etp, ep, pp and "
                         "edp"});
}

TEST(Layout, RefusesARangeBelowZigzagOrTooSmall) {
  expect_refused(
      kMesh,
      {{.shape = {8}, .cuts = {{0, Axis::kContext, CutKind::kZigzag}}, .range = RangeCut{kDp}},
       Code::kBadSharding,
       "a range over dp lies below a zigzag cut of dim 0",
       "cut the dim in blocks, or leave the range out"});
  expect_refused(kMesh, {{.shape = {8}, .range = RangeCut{.axes = kDp, .width = 2, .offset = 1}},
                         Code::kBadSharding,
                         "range width = 2 over dp = 4 does not cover a buffer of 9 elements",
                         "the least width that does: 3"});
  const std::int64_t max = std::numeric_limits<std::int64_t>::max();
  expect_refused(kMesh, {{.shape = {8}, .range = RangeCut{.axes = kDp, .offset = max}},
                         Code::kBadSharding,
                         "range offset = 9223372036854775807 is out of range",
                         "an offset is at least 0 and the buffer below 2^63 elements"});
  expect_refused(kMesh, {{.shape = {8}, .range = RangeCut{.axes = kDp, .width = max}},
                         Code::kBadSharding,
                         "range width = 9223372036854775807 over dp = 4 makes more than 2^63 "
                         "elements",
                         "the least width that covers the buffer: 2"});
}

TEST(Layout, RefusesShapesAndPlacesThatDoNotExist) {
  expect_refused(
      kMesh, {{.shape = {8, 0}}, Code::kBadSharding, "dim 1 of shape [8, 0] is less than 1", ""});
  expect_refused(kMesh, {{.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40}},
                         Code::kBadSharding,
                         "dim 1 of shape [1099511627776, 1099511627776] makes more than 2^63 "
                         "elements",
                         ""});
  expect_refused(kMesh, {{.shape = {8}, .cuts = {{1, Axis::kTensor}}},
                         Code::kBadSharding,
                         "shape [8] has no dim 1",
                         ""});
  expect_refused(kMesh, {{.shape = {8}, .pp = Coord{2}},
                         Code::kBadSharding,
                         "pp coordinate 2 is not below pp = 2",
                         "coordinates run from 0 to 1"});
}

}  // namespace
}  // namespace lockstep::mesh
