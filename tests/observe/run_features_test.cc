#include "lockstep/observe/run_features.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "lockstep/base/units.h"

namespace lockstep::observe {
namespace {

struct Case {
  cost::ModelShape shape;
  cluster::Cluster cluster;
  cost::PriceRequest request;

  Case() {
    shape.layers = 32, shape.hidden = 4096, shape.heads = shape.kv_heads = 32;
    shape.qk_dim = shape.v_dim = 128, shape.ffn = 14336, shape.vocab = 128256;
    cluster.count = 64;
    cluster.device.name = "h100";
    cluster.device.memory = {80e9};
    cluster.device.peak_bf16 = {989e12};
    cluster.device.memory_bytes_per_s = {3.35e12};
    cluster.tiers = {{"nvlink", 8, cluster::TierKind::kSwitch, {450e9}, {3e-6}},
                     {"network", 64, cluster::TierKind::kSwitch, {50e9}, {14e-6}}};
    request.shape = &shape, request.cluster = &cluster;
    request.rates = &cluster::rates_of(cluster.device);
    request.seq = 8192, request.global_batch = 256, request.tp = 4, request.pp = 2, request.dp = 8;
  }
};

TEST(RunFeatures, SharesAddUpToOne) {
  const Case c;
  const cost::Price price = cost::price(c.request);
  const auto sum = [](const RunFeatures& f) {
    return std::accumulate(f.shares.begin(), f.shares.end(), 0.0);
  };
  EXPECT_NEAR(sum(time_features(c.request, price.time)), 1, 1e-12);
  for (const std::string& name : cost::kReadings.names())
    EXPECT_NEAR(sum(memory_features(c.request, price, *cost::kReadings.find(name))), 1, 1e-12);
}

TEST(RunFeatures, OfSizesAndKinds) {
  Case c;
  const RunFeatures a = time_features(c.request, cost::price(c.request).time);
  EXPECT_NEAR(a.traits[0], std::log(8192), 1e-12);
  EXPECT_NEAR(a.traits[2], std::log(64), 1e-12);
  EXPECT_EQ(a.traits[8], 0);
  EXPECT_EQ(a.family, "hopper");
  c.request.drop = model::kWholeBlock;
  c.request.precision = cost::Precision::kFp8;
  const RunFeatures b = time_features(c.request, cost::price(c.request).time);
  EXPECT_EQ(b.traits[8], 1);
  EXPECT_EQ(b.traits[6], 1);
}

}  // namespace
}  // namespace lockstep::observe
