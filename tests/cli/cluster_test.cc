#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "lockstep/cluster/catalog.h"
#include "tests/cli/answer.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

Answer run_cluster(const std::vector<std::string>& arguments) {
  return answer(cluster_verb(), arguments);
}

TEST(ClusterVerb, ShowsACard) {
  const Answer ran = run_cluster({"cluster", "h100:16384"});
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  EXPECT_TRUE(support::matches_golden("cli/cluster_h100.txt", ran.out));
}

TEST(ClusterVerb, ListsEveryDeviceInEightyColumns) {
  const Answer ran = run_cluster({"cluster", "--list"});
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  std::istringstream lines(ran.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  for (const cluster::CatalogRow& row : cluster::catalog())
    EXPECT_NE(ran.out.find("\n" + row.device.name + " "), std::string::npos) << row.device.name;
}

// One unit for memory, here and in `plan`: what a data sheet calls 80 GB is 80 GiB.
TEST(ClusterVerb, MemoryIsInGibibytes) {
  EXPECT_NE(run_cluster({"cluster", "h100:16"})
                .out.find("memory        80 GiB at 3.35 TB/s, 1.25 TiB in all"),
            std::string::npos);
  const auto json = Json::parse(run_cluster({"cluster", "h100:16", "--json"}).out);
  EXPECT_EQ(json->find("device")->find("memory_bytes")->find("value")->as_real(), 80.0 * (1 << 30));
  EXPECT_NE(run_cluster({"cluster", "--list"}).out.find(" GiB "), std::string::npos);
  const std::string name = ::testing::TempDir() + "cluster_verb_memory.toml";
  std::ofstream(name) << "devices = 8\n[device]\nbase = \"h100\"\nmemory = \"80GiB\"\n";
  EXPECT_NE(run_cluster({"cluster", name}).out.find("memory        80 GiB"), std::string::npos);
  const Answer plan = answer(plan_verb(), {"plan", "--model", "llama3-8b", "--cluster", name,
                                           "--seq", "8192", "--global-batch", "64", "--top", "1"});
  EXPECT_NE(plan.out.find(" of 80.0 GiB "), std::string::npos) << plan.out << plan.err;
  std::remove(name.c_str());
}

TEST(ClusterVerb, JsonHoldsWhatTheCardSays) {
  const Answer ran = run_cluster({"cluster", "tpu-v5p:2x8x16", "--json"});
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  const auto json = Json::parse(ran.out);
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ(json->find("schema")->as_text(), "lockstep.cluster/1");
  EXPECT_EQ(json->find("devices")->as_int(), 256);
  EXPECT_EQ(json->find("tiers")->items().size(), 3U);
  const Json& first = json->find("tiers")->items()[0];
  EXPECT_EQ(first.find("kind")->as_text(), "line");
  EXPECT_EQ(first.find("bytes_per_s")->find("origin")->as_text(), "recalled");
  EXPECT_TRUE(json->find("device")->find("peak_fp8_flops")->is_null());
}

TEST(ClusterVerb, MarksPlaceholdersAndSaysF16OfV100) {
  const Answer pcie = run_cluster({"cluster", "rtx-4090:8"});
  EXPECT_NE(pcie.out.find("3.4 us?"), std::string::npos) << pcie.out;
  EXPECT_NE(pcie.out.find("\n? placeholder"), std::string::npos) << pcie.out;
  const Answer card = run_cluster({"cluster", "v100:8"});
  EXPECT_NE(card.out.find("125 TFLOP/s f16"), std::string::npos) << card.out;
  EXPECT_EQ(card.out.find("bf16"), std::string::npos) << card.out;
  const auto json = Json::parse(run_cluster({"cluster", "v100:8", "--json"}).out);
  EXPECT_TRUE(json->find("device")->find("peak_bf16_flops")->is_null());
  EXPECT_FALSE(json->find("device")->find("peak_f16_flops")->is_null());
}

TEST(ClusterVerb, ListsTheKeysOfAFile) {
  const Answer ran = run_cluster({"cluster", "--fields"});
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  for (const char* key : {"device.base", "device.memory_bandwidth", "[[tier]]", "oversubscription"})
    EXPECT_NE(ran.out.find(key), std::string::npos) << key;
  EXPECT_TRUE(Json::parse(run_cluster({"cluster", "--fields", "--json"}).out).ok());
}

TEST(ClusterVerb, MistakesAreUsageErrorsWithHelp) {
  const Answer near = run_cluster({"cluster", "h10:8"});
  EXPECT_EQ(near.code, ExitCode::kUsage);
  EXPECT_NE(near.err.find("LS0401"), std::string::npos) << near.err;
  EXPECT_NE(near.err.find("h100"), std::string::npos) << near.err;
  EXPECT_EQ(run_cluster({"cluster"}).code, ExitCode::kUsage);
  EXPECT_EQ(run_cluster({"cluster", "h100:8", "--list"}).code, ExitCode::kUsage);
  EXPECT_EQ(run_cluster({"cluster", "h100:12"}).code, ExitCode::kUsage);
}

}  // namespace
}  // namespace lockstep::cli
