#include "lockstep/cluster/cluster.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

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
