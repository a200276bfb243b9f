#include "lockstep/cost/analytic/collective_time.h"

#include <gtest/gtest.h>

#include "lockstep/cluster/catalog.h"

namespace lockstep::cost {
namespace {

struct Net {
  cluster::Cluster machine;
  cluster::DeviceRates rates;
  Fabric fabric() const { return {&machine, &rates}; }
  explicit Net(const char* name)
      : machine(*cluster::cluster_from_name(name)), rates(cluster::rates_of(machine.device)) {
    rates.at(cluster::Term::kScaleUp).value = 1;
    rates.at(cluster::Term::kNetwork).value = 1;
  }
};

// Anchor A18: all_reduce moves twice (n - 1) / n of its bytes, gather and scatter once.
TEST(CollectiveTime, RingBytes) {
  Net net("h100:8");
  const double big = 1e12, rate = 450e9;
  EXPECT_NEAR(gather_seconds(net.fabric(), big, {8, 1}), big * 7 / 8 / rate, 1e-4);
  EXPECT_NEAR(reduce_seconds(net.fabric(), big, {8, 1}), 2 * big * 7 / 8 / rate, 2e-4);
  EXPECT_EQ(gather_seconds(net.fabric(), big, {1, 1}), 0);
}

// Ranks of one node that all belong to the group share their links to the network.
TEST(CollectiveTime, NodesPoolTheirLinks) {
  Net net("h100:64");
  const double big = 1e12;
  EXPECT_NEAR(gather_seconds(net.fabric(), big, {64, 1}), big * 63 / 64 / 400e9, 1e-3);
  EXPECT_NEAR(gather_seconds(net.fabric(), big, {8, 8}), big * 7 / 8 / 50e9, 1e-3);
}

// Anchor A18, torus: 34 MB over an axis of 4 of v5e, with wrap-around 377 us, without 560
// (scaling-book).
TEST(CollectiveTime, TorusAxis) {
  Net ring("tpu-v5e:16x16");
  Net line("tpu-v5e:4x1");
  const double bytes = 2048.0 * 8192 * 2;
  EXPECT_NEAR(gather_seconds(line.fabric(), bytes, {4, 1}) * 1e6, 560, 25);
  EXPECT_NEAR(bytes / 90e9 * 1e6, 373, 1);  // both ways round, as the book idealises
  EXPECT_LT(gather_seconds(ring.fabric(), bytes, {16, 1}),
            gather_seconds(line.fabric(), bytes, {4, 1}));
}

// A share of the network is one of what leaves a node alone.
TEST(CollectiveTime, ShareOfTheNetwork) {
  Net net("h100:64");
  Fabric half = net.fabric();
  half.network_share = 0.5;
  EXPECT_NEAR(gather_seconds(half, 1e12, {8, 8}) / gather_seconds(net.fabric(), 1e12, {8, 8}), 2,
              1e-3);
  EXPECT_EQ(gather_seconds(half, 1e12, {8, 1}), gather_seconds(net.fabric(), 1e12, {8, 1}));
}

TEST(CollectiveTime, OuterShareOfAnExchange) {
  Net net("h100:64");
  const double all = exchange_seconds(net.fabric(), 1e12, {64, 1});
  EXPECT_NEAR(exchange_seconds(net.fabric(), 1e12, {64, 1}, 0.5) / all, 0.5, 1e-3);
  EXPECT_EQ(nodes_of(net.fabric(), {64, 1}), 8);
  EXPECT_EQ(nodes_of(net.fabric(), {8, 1}), 1);
}

// More ranks never make a collective of the same bytes faster, and more bytes never.
TEST(CollectiveTime, Monotone) {
  Net net("h100:4096");
  for (int size = 2; size < 4096; size *= 2) {
    EXPECT_LE(gather_seconds(net.fabric(), 1e9, {size, 8}),
              gather_seconds(net.fabric(), 1e9, {2 * size, 8}));
    EXPECT_LT(gather_seconds(net.fabric(), 1e9, {size, 1}),
              gather_seconds(net.fabric(), 2e9, {size, 1}));
  }
}

}  // namespace
}  // namespace lockstep::cost
