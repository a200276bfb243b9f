#include "lockstep/search/stage_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "lockstep/cost/stage_memory.h"
#include "lockstep/search/finalists.h"
#include "lockstep/search/layout_of.h"
#include "tests/search/questions.h"

namespace lockstep::search {
namespace {

cost::PriceRequest asked_for(const Asked& asked, const char* layout) {
  const auto request = request_of(asked.question, *plan::parse_layout(layout), 1);
  EXPECT_TRUE(request.ok());
  return *request;
}

PassTimes times_of(const cost::PriceRequest& r) { return pass_times(r, cost::price_time(r)); }

double slowest_stage(const PassTimes& times, const StageLayers& layers) {
  double most = 0;
  for (std::size_t i = 0; i < layers.size(); ++i)
    most = std::max(most, layers[i] * times.layer() + (i + 1 == layers.size() ? times.head() : 0));
  return most;
}

// Every way to put the layers that are left on the stages that are left.
template <class Visit>
void each_way(StageLayers& made, std::size_t stages, int left, const Visit& visit) {
  if (made.size() + 1 == stages) {
    made.push_back(left);
    visit(made);
    made.pop_back();
    return;
  }
  const int after = static_cast<int>(stages - made.size()) - 1;
  for (int n = 1; n + after <= left; ++n) {
    made.push_back(n);
    each_way(made, stages, left - n, visit);
    made.pop_back();
  }
}

// Small models with heads of all weights on devices whose memory some or all splits fit; the best of trying all.
TEST(StageLayers, AreThoseThatTryingAllFinds) {
  std::mt19937 random(3);
  int uneven = 0, tight = 0;
  for (int round = 0; round < 60; ++round) {
    Asked asked("llama3-8b", "h100:8", 2048, 64);
    cost::ModelShape& shape = asked.question.shape;
    shape.layers = 6 + static_cast<double>(random() % 5);
    shape.vocab = 32000.0 * static_cast<double>(1 + random() % 16);
    const char* names[] = {"pp2 dp4 zero1", "pp4 dp2 zero1 gpipe", "pp4 dp2 zero0 zb-h1",
                           "tp2 pp4 zero1 recompute=block"};
    const cost::PriceRequest r = asked_for(asked, names[random() % std::size(names)]);
    const PassTimes times = times_of(r);
    std::vector<double> bytes;
    StageLayers made;
    const auto all = [&](const auto& visit) {
      each_way(made, static_cast<std::size_t>(r.pp), count_of(shape.layers), visit);
    };
    all([&](const StageLayers& layers) {
      bytes.push_back(cost::device_bytes(fullest_rank(r, layers)));
    });
    std::ranges::sort(bytes);
    const double room = bytes[random() % bytes.size()];
    asked.cluster.device.memory.value *= room / cost::capacity_bytes(asked.cluster.device) * 1.0001;
    double best = 1e300, free = 1e300;
    all([&](const StageLayers& layers) {
      const double seconds = slowest_stage(times, layers);
      free = std::min(free, seconds);
      if (cost::device_bytes(fullest_rank(r, layers)) <= room * 1.0001)
        best = std::min(best, seconds);
    });
    const StageLayers found = best_layers(r, times);
    ASSERT_EQ(std::accumulate(found.begin(), found.end(), 0), count_of(shape.layers));
    ASSERT_NEAR(slowest_stage(times, found) / best, 1, 1e-9) << round;
    ASSERT_LE(cost::device_bytes(fullest_rank(r, found)), room * 1.0002) << round;
    uneven += found != dealt_layers(count_of(shape.layers), count_of(r.pp)) ? 1 : 0;
    tight += best > free * 1.001 ? 1 : 0;
  }
  EXPECT_GT(uneven, 10);
  EXPECT_GT(tight, 5);
}

// Half the vocabulary's head is as dear as a layer and more: its stage takes fewer, and the step is shorter.
TEST(StageLayers, AHeavyHeadLeavesItsStageFewer) {
  const Asked asked("llama3-8b", "h100:64", 8192, 512);
  const cost::PriceRequest r = asked_for(asked, "pp4 dp16 zero1");
  const StageLayers found = best_layers(r, times_of(r)), dealt = dealt_layers(32, 4);
  EXPECT_EQ(dealt, (StageLayers{8, 8, 8, 8}));
  EXPECT_LT(found.back(), 8);
  const Priced priced{r, cost::price(r)};
  const Finalist uneven = simulate(priced), even = simulate(priced, dealt);
  EXPECT_EQ(uneven.layers, found);
  EXPECT_TRUE(even.layers.empty());
  EXPECT_LT(uneven.seconds, 0.95 * even.seconds);
  EXPECT_TRUE(uneven.priced.price.fits);
}

// A pipeline whose memory is even is priced as before.
TEST(StageLayers, MemoryOfEvenStagesIsThePrice) {
  const Asked asked("llama3-70b", "h100:64", 8192, 128);
  const cost::PriceRequest r = asked_for(asked, "tp8 pp4 dp2 zero1");
  EXPECT_DOUBLE_EQ(fullest_rank(r, dealt_layers(80, 4)).allocated(),
                   cost::price_memory(r).allocated());
}

}  // namespace
}  // namespace lockstep::search
