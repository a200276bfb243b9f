#include "lockstep/backtest/run_machine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "lockstep/cluster/catalog.h"
#include "lockstep/cluster/rates.h"

namespace lockstep::backtest {
namespace {

TEST(RunMachine, NetworksAsSourcesPrintThem) {
  EXPECT_DOUBLE_EQ(network_rate("4x100 Gb/s Omni-Path per node", 8), 6.25e9);
  EXPECT_DOUBLE_EQ(network_rate("400 Gb/s per GPU (implied)", 8), 50e9);
  EXPECT_DOUBLE_EQ(network_rate("IB 800 Gb/s per node", 8), 12.5e9);
  EXPECT_DOUBLE_EQ(network_rate("8x200 Gb/s HDR IB per node (Selene)", 8), 25e9);
  EXPECT_DOUBLE_EQ(network_rate("EFA 3200 Gb/s per node", 8), 50e9);
  EXPECT_DOUBLE_EQ(network_rate("1600 Gb/s RoCE", 8), 25e9);
  EXPECT_EQ(network_rate("DCN between slices", 8), 0);
  EXPECT_EQ(network_rate("", 8), 0);
}

Result<cluster::Cluster> machine(const char* gpu, const char* memory, const char* notes) {
  static const std::vector<std::string> columns = {
      "gpu", "gpu_mem_gb", "notes", "gpus_per_node", "interconnect_intra", "interconnect_inter"};
  return machine_of(PublishedRun(&columns, {gpu, memory, notes, "8", "", ""}), 8);
}

cluster::DeviceType device_of(const char* name) { return cluster::cluster_from_name(name)->device; }

// Memory, power and bandwidth of a row go before those of the catalogue.
TEST(RunMachine, VariantsAreWhatARowSays) {
  const auto gemm = [](const Result<cluster::Cluster>& made) {
    return cluster::rates_of(made->device)[cluster::Term::kGemm];
  };
  const auto usual = machine("H100-SXM-80GB", "80", "");
  const auto capped = machine("H100-SXM-80GB", "80", "HBM2e 2.4 TB/s, 500 W cap; FSDP2");
  EXPECT_EQ(capped->device.memory_bytes_per_s.value, 2.4e12);
  EXPECT_DOUBLE_EQ(gemm(capped), gemm(usual) * std::cbrt(500.0 / 700));
  EXPECT_EQ(gemm(machine("H100-SXM-80GB-500W", "80", "")), gemm(capped));
  EXPECT_EQ(gemm(machine("H100-SXM-96GB-HBM2e-500W", "96", "")), gemm(capped));
  EXPECT_EQ(machine("H100-64GB", "64", "")->device.name, "h100-64");
  EXPECT_EQ(machine("A100-SXM-40GB", "40", "")->device.name, "a100-40");
  // Near to a row that is named by its memory, but another device.
  EXPECT_EQ(machine("H100-NVL-94GB", "94", "")->device.name, "h100");
  EXPECT_EQ(machine("V100-SXM2", "16", "")->device.memory.value, 16 * kGib);
  EXPECT_EQ(machine("H100", "", "")->device, device_of("h100"));
}

TEST(RunMachine, ContradictoryVariantsAreRefused) {
  struct Case {
    const char *gpu, *memory, *notes, *words;
  };
  for (const Case& one :
       {Case{"H100-64GB", "80", "", "gpu is `H100-64GB`, but gpu_mem_gb is 80"},
        Case{"H100", "1", "", "gpu_mem_gb is 1, but a h100 has 80: from 20 to 160"},
        Case{"H100", "0", "", "gpu_mem_gb is 0"}, Case{"H100", "-5", "", "gpu_mem_gb is"},
        Case{"H100", "many", "", "gpu_mem_gb is"},
        Case{"H100", "80", "10 W cap", "a power of 10 W for device `h100`, which usually has 700"},
        Case{"H100", "80", "9999 W cap", "a power of 9999 W"},
        Case{"V100", "32", "300 W cap", "whose usual power is not known"},
        Case{"H100", "80", "HBM3 99 TB/s", "memory bandwidth is 99"}}) {
    const auto made = machine(one.gpu, one.memory, one.notes);
    ASSERT_FALSE(made.ok()) << one.words;
    EXPECT_EQ(made.error().code, Code::kRowNotPriced);
    EXPECT_NE(made.error().message.find(one.words), std::string::npos) << made.error().message;
  }
}

}  // namespace
}  // namespace lockstep::backtest
