#include "lockstep/cluster/catalog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace lockstep::cluster {
namespace {

TEST(Catalog, EveryRowIsUsableAndNamedOnce) {
  std::set<std::string> names;
  for (const CatalogRow& row : catalog()) {
    SCOPED_TRACE(row.device.name);
    EXPECT_TRUE(names.insert(row.device.name).second);
    const auto one = cluster_from_name(row.device.name);
    ASSERT_TRUE(one.ok()) << one.error().message;
    EXPECT_EQ(one->count, 1);
    EXPECT_EQ(one->device, row.device);
    EXPECT_TRUE(row.device.memory_bytes_per_s.known());
    EXPECT_NE(row.device.peak_bf16.known(), row.device.peak_f16.known());
    EXPECT_EQ(row.torus_axes > 0, row.node_size == 0);
  }
}

// A wrong unit or a slipped digit leaves these ranges; every row is checked.
TEST(Catalog, FiguresAreOfTheRightOrder) {
  for (const CatalogRow& row : catalog()) {
    SCOPED_TRACE(row.device.name);
    const DeviceType& d = row.device;
    if (d.memory.origin == Origin::kUncalibrated) continue;
    EXPECT_GE(d.memory.value, 16 * kGib);
    EXPECT_LE(d.memory.value, 300 * kGib);
    // FLOPs per byte of memory traffic: between 100 (V100) and 600 (v6e) on every accelerator but
    // the H20, whose peak is cut to 15 % of its chip's.
    const double peak_16_bit = d.peak_bf16.value + d.peak_f16.value;
    const double intensity = peak_16_bit / d.memory_bytes_per_s.value;
    if (d.name == "h20")
      EXPECT_DOUBLE_EQ(intensity, 37);
    else
      EXPECT_GE(intensity, 100);
    EXPECT_LE(intensity, 600);
    if (d.peak_fp8.known()) {
      EXPECT_NEAR(d.peak_fp8.value / d.peak_bf16.value, 2, 0.01);
    }
    if (d.largest_matmul_bf16.known()) {
      EXPECT_LT(d.largest_matmul_bf16.value, d.peak_bf16.value);
      EXPECT_GT(d.largest_matmul_bf16.value, d.peak_bf16.value / 2);
    }
    if (d.peak_f32.known()) {
      EXPECT_LT(d.peak_f32.value, peak_16_bit);
    }
    if (row.network_bytes_per_s.known()) {
      EXPECT_LT(row.network_bytes_per_s.value, row.scale_up_bytes_per_s.value);
    }
  }
}

// NCCL's constants are those of NVLink and of NVIDIA's networks.
TEST(Catalog, LatenciesAreCalledPublishedOnlyWhereTheyAre) {
  for (const CatalogRow& row : catalog()) {
    SCOPED_TRACE(row.device.name);
    const bool nvlink = row.scale_up == "nvlink";
    EXPECT_EQ(row.scale_up_latency_s.origin,
              nvlink || row.torus_axes > 0 ? Origin::kPublished : Origin::kUncalibrated);
    EXPECT_EQ(row.network_latency_s.known(), row.network_bytes_per_s.known());
    if (row.network_latency_s.known()) {
      EXPECT_EQ(row.network_latency_s.origin, nvlink ? Origin::kPublished : Origin::kUncalibrated);
    }
  }
}

TEST(Catalog, V100HasNoBf16) {
  const DeviceType v100 = cluster_from_name("v100")->device;
  EXPECT_FALSE(v100.peak_bf16.known());
  EXPECT_EQ(v100.peak_f16, (Figure{125e12, Origin::kPublished}));
}

TEST(ClusterFromName, H100HasNodesOfEightAndOneNicPerDevice) {
  const auto cluster = cluster_from_name("h100:16384");
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  EXPECT_EQ(cluster->count, 16384);
  ASSERT_EQ(cluster->tiers.size(), 2U);
  EXPECT_EQ(cluster->tiers[0].size, 8);
  EXPECT_DOUBLE_EQ(cluster->tiers[0].bytes_per_s.value, 450e9);
  EXPECT_EQ(cluster->tiers[1].size, 16384);
  EXPECT_DOUBLE_EQ(cluster->tiers[1].bytes_per_s.value, 50e9);
}

TEST(ClusterFromName, FewerThanANodeIsOnePartialNode) {
  const auto cluster = cluster_from_name("h100:4");
  ASSERT_TRUE(cluster.ok());
  ASSERT_EQ(cluster->tiers.size(), 1U);
  EXPECT_EQ(cluster->tiers[0].size, 4);
}

TEST(ClusterFromName, ASlashLeavesPartOfEachDomainUnused) {
  const auto cluster = cluster_from_name("gb200:128/64");
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  EXPECT_EQ(cluster->tiers[0].size, 64);
  EXPECT_EQ(cluster->tiers[1].size, 128);
  EXPECT_FALSE(cluster_from_name("gb200:128").ok());
  EXPECT_FALSE(cluster_from_name("gb200:128/73").ok());
}

TEST(ClusterFromName, ATorusIsOneTierPerAxis) {
  const auto cluster = cluster_from_name("tpu-v5p:2x8x16");
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  EXPECT_EQ(cluster->count, 256);
  ASSERT_EQ(cluster->tiers.size(), 3U);
  EXPECT_EQ(cluster->tiers[0].kind, TierKind::kLine);  // too short to wrap
  EXPECT_EQ(cluster->tiers[1].kind, TierKind::kRing);
  EXPECT_EQ(cluster->tiers[1].size, 16);
  EXPECT_EQ(cluster->tiers[2].name, "ici-z");
}

TEST(ClusterFromName, SaysWhatIsWrongAndWhatWouldBeRight) {
  const struct {
    const char* text;
    Code code;
    const char* message;
    const char* help;
  } cases[] = {
      {"h1000:8", Code::kUnknownDevice, "no device is called `h1000`", "h100"},
      {"", Code::kUnknownDevice, "no device is called ``", "h100"},
      {"h100:12", Code::kBadCluster, "12 devices do not fill nodes of 8", "8 and 16"},
      {"h100:0", Code::kBadCluster, "at least 1", "h100:64"},
      {"h100:", Code::kBadCluster, "at least 1", "h100:64"},
      {"h100:-8", Code::kBadCluster, "at least 1", "h100:64"},
      {"h100:8x8", Code::kBadCluster, "h100 is not a torus", "h100:64"},
      {"h100:99999999999999999999", Code::kBadCluster, "at most 2147483647", "h100:64"},
      {"h100:2147483648", Code::kBadCluster, "at most 2147483647", "h100:64"},
      {"tpu-v5p:65536x65536x4", Code::kBadCluster, "up to 2147483647", ""},
      {"h100:64/16", Code::kBadCluster, "16 devices per node", "cluster file"},
      {"rtx-4090:16", Code::kBadCluster, "no usual network", "at most 8"},
      {"tpu-v5p:64", Code::kBadCluster, "lengths of its 3 axes", "tpu-v5p:4x4x8"},
      {"tpu-v5e:4x4x4", Code::kBadCluster, "lengths of its 2 axes", "tpu-v5e:16x16"},
      {"tpu-v5p:4x0x4", Code::kBadCluster, "lengths of its 3 axes", "tpu-v5p"},
      {"tpu-v5p:4x4x", Code::kBadCluster, "lengths of its 3 axes", "tpu-v5p"},
      {"tpu-v5p:4x4x9999999999", Code::kBadCluster, "lengths of its 3 axes", "tpu-v5p"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    const auto result = cluster_from_name(c.text);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, c.code);
    EXPECT_NE(result.error().message.find(c.message), std::string::npos) << result.error().message;
    EXPECT_NE(result.error().help.find(c.help), std::string::npos) << result.error().help;
  }
}

TEST(ClusterFromName, KnowsWhatDriversAndDataSheetsCallDevices) {
  const std::pair<const char*, const char*> cases[] = {{"NVIDIA H100 80GB HBM3:8", "h100:8"},
                                                       {"NVIDIA A100-SXM4-80GB:16", "a100:16"},
                                                       {"A100-SXM4-40GB", "a100-40"},
                                                       {"NVIDIA A100 80GB PCIe:2", "a100-pcie:2"},
                                                       {"NVIDIA H200:1k", "h200:1024"},
                                                       {"Tesla V100-SXM2-32GB:8", "v100:8"},
                                                       {"AMD Instinct MI300X:8", "mi300x:8"},
                                                       {"NVIDIA GeForce RTX 4090:4", "rtx-4090:4"},
                                                       {"NVIDIA B200:64", "b200:64"},
                                                       {"H100:1.5k/4", "h100:1536/4"},
                                                       {"Google TPU v5p:4x4x8", "tpu-v5p:4x4x8"}};
  for (const auto& [named, usual] : cases) {
    const auto found = cluster_from_name(named);
    ASSERT_TRUE(found.ok()) << named << ": " << found.error().message;
    EXPECT_EQ(*found, *cluster_from_name(usual));
    EXPECT_EQ(found->name, usual);
  }
  for (const CatalogRow& row : catalog())
    EXPECT_EQ(cluster_from_name(row.device.title)->device.name, row.device.name);
}

// A smaller machine is the one that would be named so, also where its name says nothing.
TEST(Resized, IsTheMachineOfThatManyDevices) {
  for (const char* base : {"h100:512", "gb200:128/64", "mi300x:64", "l40s:8"}) {
    const Cluster all = *cluster_from_name(base);
    Cluster own = all;
    own.name = "ours";
    for (std::int64_t count = 1; count <= all.count; ++count) {
      const std::size_t slash = std::min(all.name.find('/'), all.name.size());
      const auto usual =
          cluster_from_name(join_parts(all.device.name, ":", count, all.name.substr(slash)));
      const auto named = resized(all, count);
      auto unnamed = resized(own, count);
      ASSERT_EQ(named.ok(), usual.ok());
      ASSERT_EQ(unnamed.ok(), usual.ok()) << base << " " << count;
      if (!usual.ok()) continue;
      EXPECT_EQ(*named, *usual);
      EXPECT_EQ(unnamed->name,
                count == all.count ? "ours" : join_parts("ours, ", count, " devices"));
      unnamed->name = usual->name;
      EXPECT_EQ(*unnamed, *usual);
    }
  }
  EXPECT_EQ(resized(*cluster_from_name("h100"), 64)->tiers.size(), 2U);
  EXPECT_FALSE(resized(*cluster_from_name("tpu-v5p:4x4x8"), 64).ok());
  Cluster torus = *cluster_from_name("tpu-v5p:4x4x8");
  torus.name = "pod";
  EXPECT_FALSE(resized(torus, 64).ok());
}

}  // namespace
}  // namespace lockstep::cluster
