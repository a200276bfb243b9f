#include "lockstep/cluster/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "lockstep/mesh/mesh.h"

namespace lockstep::cluster {
namespace {

Cluster two_tiers(std::int64_t node, std::int64_t count) {
  DeviceType device;
  device.name = "test";
  device.memory = {1e9};
  return {"test",
          device,
          count,
          {{"node", node, TierKind::kSwitch, {1e11}, {1e-6}},
           {"network", count, TierKind::kSwitch, {1e10}, {1e-5}}}};
}

// Walks every block of the partition and asks whether it leaves an instance of the tier.
bool every_block_fits(std::int64_t size, std::int64_t span, std::int64_t count) {
  for (std::int64_t first = 0; first + span <= count; first += span)
    if (first / size != (first + span - 1) / size) return false;
  return true;
}

TEST(TierOf, IsTheInnermostTierThatNoAlignedBlockLeaves) {
  Cluster cluster = two_tiers(8, 96);
  cluster.tiers.insert(cluster.tiers.begin() + 1, {"rail", 48, TierKind::kSwitch, {5e10}, {1e-5}});
  ASSERT_TRUE(validated(cluster).ok());
  for (std::int64_t span = 1; span <= cluster.count; ++span) {
    // Blocks are groups of a mesh, so only spans that divide the whole cluster occur.
    if (cluster.count % span != 0) continue;
    std::size_t want = 0;
    while (!every_block_fits(cluster.tiers[want].size, span, cluster.count)) ++want;
    EXPECT_EQ(tier_of(cluster, span), want) << "span " << span;
  }
}

TEST(TierOf, BlocksOfSixOnNodesOfEightCrossNodes) {
  EXPECT_EQ(tier_of(two_tiers(8, 48), 6), 1U);
  EXPECT_EQ(tier_of(two_tiers(8, 48), 4), 0U);
  EXPECT_EQ(tier_of(two_tiers(8, 48), 16), 1U);
}

TEST(TierOf, RefusesASpanBeyondTheCluster) {
  EXPECT_THROW(tier_of(two_tiers(8, 64), 65), BrokenInvariant);
  EXPECT_THROW(tier_of(two_tiers(8, 64), 0), BrokenInvariant);
}

// On 4 nodes of 8: tp=4 stays inside, pp crosses nodes unless its order puts it inside.
TEST(TierOf, AGroupCrossesWhatItsOrderMakesItCross) {
  const Cluster cluster = two_tiers(8, 32);
  const mesh::Degrees degrees = {.tp = 4, .pp = 2, .dp = 4};
  const auto usual = mesh::Mesh::create(degrees);
  const auto outside = mesh::Mesh::create(degrees, *mesh::Order::parse("tp,cp,dp,pp"));
  ASSERT_TRUE(usual.ok() && outside.ok());
  for (std::int32_t r = 0; r < 32; ++r) {
    EXPECT_EQ(tier_of(cluster, usual->group(Rank{r}, mesh::Axis::kTensor)), 0U);
    EXPECT_EQ(tier_of(cluster, usual->group(Rank{r}, mesh::Axis::kPipeline)), 0U);
    EXPECT_EQ(tier_of(cluster, usual->group(Rank{r}, mesh::kDp)), 1U);
    EXPECT_EQ(tier_of(cluster, outside->group(Rank{r}, mesh::Axis::kPipeline)), 1U);
  }
}

// The span form is the worst over the groups of a mesh.
TEST(TierOf, SpanAgreesWithTheWorstGroup) {
  for (const std::int64_t tp : {1, 2, 3, 4, 6, 8, 12, 16, 24, 48}) {
    const Cluster cluster = two_tiers(8, 48);
    const auto mesh = mesh::Mesh::create({.tp = tp, .dp = 48 / tp});
    ASSERT_TRUE(mesh.ok());
    std::size_t worst = 0;
    for (std::int32_t r = 0; r < 48; ++r)
      worst = std::max(worst, tier_of(cluster, mesh->group(Rank{r}, mesh::Axis::kTensor)));
    EXPECT_EQ(tier_of(cluster, tp), worst) << "tp " << tp;
  }
}

void expect_refused(const Cluster& cluster, const std::string& part) {
  const auto result = validated(cluster);
  ASSERT_FALSE(result.ok()) << part;
  EXPECT_EQ(result.error().code, Code::kBadCluster);
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
}

TEST(Validated, AcceptsAConsistentClusterUnchanged) {
  const auto result = validated(two_tiers(8, 64));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result, two_tiers(8, 64));
}

TEST(Validated, NamesTheTierAndBothValues) {
  expect_refused(two_tiers(8, 8), "tier `network` has size 8, but the tier inside it has 8");
  expect_refused(two_tiers(8, 60), "size 60, which is not a multiple of 8");
  EXPECT_EQ(validated(two_tiers(8, 60)).error().help, "the nearest sizes are 56 and 64");
  Cluster more = two_tiers(8, 64);
  more.count = 128;
  expect_refused(more, "has size 64, but the cluster has 128 devices");
}

TEST(Validated, RefusesFiguresThatCannotBe) {
  Cluster cluster = two_tiers(8, 64);
  cluster.tiers[1].bytes_per_s.value = 0;
  expect_refused(cluster, "bytes_per_s 0");
  cluster = two_tiers(8, 64);
  cluster.tiers[0].latency_s.value = -1;
  expect_refused(cluster, "latency_s -1");
  cluster = two_tiers(8, 64);
  cluster.tiers[0].oversubscription = std::numeric_limits<double>::quiet_NaN();
  expect_refused(cluster, "oversubscription");
  cluster = two_tiers(8, 64);
  cluster.tiers[0].size = 0;
  expect_refused(cluster, "at least one device");
  cluster = two_tiers(8, 64);
  cluster.tiers.clear();
  expect_refused(cluster, "no tiers");
  cluster = two_tiers(8, 64);
  cluster.device.memory = {};
  expect_refused(cluster, "no memory size");
  expect_refused({"none", {}, 0, {}}, "0 devices");
}

}  // namespace
}  // namespace lockstep::cluster
