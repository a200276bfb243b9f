#include "lockstep/backtest/run_machine.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep::backtest
