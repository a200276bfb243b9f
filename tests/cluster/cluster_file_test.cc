#include "lockstep/cluster/cluster_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/cluster/catalog.h"

namespace lockstep::cluster {
namespace {

std::optional<Cluster> read(const std::string& text, config::Report& report) {
  const auto document = config::parse_document(text, "c.toml", config::Format::kToml, report);
  return document ? read_cluster(*document, report) : std::nullopt;
}

Cluster must_read(const std::string& text) {
  config::Report report;
  const auto cluster = read(text, report);
  EXPECT_TRUE(cluster.has_value()) << report.text("c.toml", false);
  return cluster.value_or(Cluster{});
}

std::string errors_of(const std::string& text) {
  config::Report report;
  EXPECT_FALSE(read(text, report).has_value());
  return report.text("c.toml", false);
}

TEST(ReadCluster, ABaseAloneIsTheUsualMachine) {
  Cluster want = *cluster_from_name("h100:64");
  want.name = "cluster";
  EXPECT_EQ(must_read("devices = 64\n[device]\nbase = \"h100\"\n"), want);
}

TEST(ReadCluster, UserFiguresReplaceThoseOfTheBaseAndSaySo) {
  const Cluster cluster = must_read(
      "name = \"ours\"\ndevices = 64\n[device]\nbase = \"h100\"\nmemory = \"94 GB\"\n"
      "peak_bf16 = 800\nmemory_bandwidth = 2400.0\n");
  EXPECT_EQ(cluster.name, "ours");
  EXPECT_EQ(cluster.device.memory, (Figure{94e9, Origin::kUser}));
  EXPECT_EQ(cluster.device.peak_bf16, (Figure{800e12, Origin::kUser}));
  EXPECT_EQ(cluster.device.memory_bytes_per_s, (Figure{2400e9, Origin::kUser}));
  EXPECT_EQ(cluster.device.peak_fp8, (Figure{1979e12, Origin::kPublished}));
}

constexpr const char* kOwnMachine =
    "devices = 32\n[device]\nname = \"box\"\nmemory = \"16 GiB\"\n"
    "[[tier]]\nname = \"board\"\ndevices = 4\nkind = \"ring\"\nbandwidth = 100\nlatency = 2.5\n"
    "[[tier]]\nname = \"rack\"\ndevices = 32\nbandwidth = 12.5\noversubscription = 2\n";

TEST(ReadCluster, TiersAreReadInOrderWithTheirUnits) {
  const Cluster cluster = must_read(kOwnMachine);
  ASSERT_EQ(cluster.tiers.size(), 2U);
  EXPECT_EQ(
      cluster.tiers[0],
      (Tier{"board", 4, TierKind::kRing, {100e9, Origin::kUser}, {2.5 * 1e-6, Origin::kUser}, 1}));
  EXPECT_EQ(cluster.tiers[1].kind, TierKind::kSwitch);
  EXPECT_DOUBLE_EQ(cluster.tiers[1].oversubscription, 2);
  EXPECT_EQ(cluster.device.name, "box");
  EXPECT_DOUBLE_EQ(cluster.device.memory.value, 16.0 * (1 << 30));
}

TEST(ReadCluster, NamesEveryMistakeAtOnce) {
  const std::string text = errors_of(
      "devices = 0\nsize = 3\n[device]\nbase = \"h10\"\n[[tier]]\nname = \"a\"\ndevices = 8\n");
  EXPECT_NE(text.find("devices"), std::string::npos) << text;
  EXPECT_NE(text.find("size"), std::string::npos) << text;
  EXPECT_NE(text.find("h100"), std::string::npos) << text;
  EXPECT_NE(text.find("tier[0].bandwidth"), std::string::npos) << text;
}

TEST(ReadCluster, AContradictionPointsAtTheTiers) {
  std::string text = kOwnMachine;
  text.replace(text.find("devices = 4"), 11, "devices = 5");
  const std::string report = errors_of(text);
  EXPECT_NE(report.find("LS0402"), std::string::npos) << report;
  EXPECT_NE(report.find("not a multiple of 5"), std::string::npos) << report;
}

TEST(ReadCluster, ACountTheUsualMachineCannotHavePointsAtTheCount) {
  const std::string report = errors_of("devices = 12\n[device]\nbase = \"h100\"\n");
  EXPECT_NE(report.find("c.toml:1:1"), std::string::npos) << report;
  EXPECT_NE(report.find("8 and 16"), std::string::npos) << report;
}

TEST(ReadCluster, PowerIsNearTheUsual) {
  const std::string file = "devices = 8\n[device]\nbase = \"h100\"\npower = ";
  EXPECT_EQ(must_read(file + "500\n").device.watts.value, 500);
  EXPECT_NE(errors_of(file + "50\n").find("from 175 to 1050 W"), std::string::npos);
  EXPECT_NE(errors_of(file + "0\n").find("device.power"), std::string::npos);
  const std::string other = "devices = 8\n[device]\nbase = \"mi300x\"\npower = 500\n";
  EXPECT_NE(errors_of(other).find("is not known"), std::string::npos);
}

TEST(FindCluster, TellsFilesFromNames) {
  config::Report report;
  EXPECT_EQ(find_cluster("h100:64", report), *cluster_from_name("h100:64"));
  EXPECT_FALSE(find_cluster("nowhere.toml", report).has_value());
  EXPECT_EQ(report.first_error().code, Code::kFileUnreadable);
  EXPECT_EQ(find_cluster("gb200:128/64", report), *cluster_from_name("gb200:128/64"));
  const std::string dir = testing::TempDir();
  const std::string path = dir + "/lockstep_cluster_without_ending";
  std::ofstream(path) << "devices = 64\n[device]\nbase = \"h100\"\n";
  EXPECT_TRUE(find_cluster(path, report)) << report.text("", false);
  std::filesystem::remove(path);
  config::Report on_directory;
  EXPECT_FALSE(find_cluster(dir, on_directory));
  EXPECT_EQ(on_directory.first_error().code, Code::kFileUnreadable);
}

TEST(ReadCluster, RanksAreCountedInThirtyTwoBits) {
  const std::string report = errors_of("devices = 2147483648\n[device]\nbase = \"h100\"\n");
  EXPECT_NE(report.find("LS0103"), std::string::npos) << report;
  EXPECT_NE(report.find("too large"), std::string::npos) << report;
}

}  // namespace
}  // namespace lockstep::cluster
