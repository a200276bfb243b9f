#include "lockstep/planner/stage_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "lockstep/cost/analytic/peak_memory.h"
#include "lockstep/pipeline/layer_split.h"
#include "lockstep/planner/finalists.h"
#include "lockstep/planner/layout_of.h"
#include "tests/planner/questions.h"

namespace lockstep::planner {
namespace {

cost::PriceRequest asked_for(const Asked& asked, const char* layout) {
  const auto request = request_of(asked.question, *spec::parse_layout(layout), 1);
  EXPECT_TRUE(request.ok());
  return *request;
}

PassTimes times_of(const cost::PriceRequest& r) { return pass_times(r); }

double stage_seconds(const PassTimes& times, const Stages& stages, std::size_t i) {
  return stages.layers[i] * times.layer() + stages.recomputed[i] * times.again +
         (i + 1 == stages.layers.size() ? times.head() : 0);
}

double slowest_stage(const PassTimes& times, const Stages& stages) {
  double most = 0;
  for (std::size_t i = 0; i < stages.layers.size(); ++i)
    most = std::max(most, stage_seconds(times, stages, i));
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

// Small models with heads of all weights on devices whose memory some or all splits fit; the best
// of trying all.
TEST(StageLayers, AreThoseThatTryingAllFinds) {
  std::mt19937 random(3);
  int uneven = 0, tight = 0;
  for (int round = 0; round < 60; ++round) {
    Asked asked("llama3-8b", "h100:8", 2048, 64);
    cost::ModelShape& shape = asked.shape;
    shape.layers = 6 + static_cast<int>(random() % 5);
    shape.vocab = 32000.0 * static_cast<double>(1 + random() % 16);
    const char* names[] = {"pp2 dp4 zero1", "pp4 dp2 zero1 gpipe", "pp4 dp2 zero0 zb-h1",
                           "tp2 pp4 zero1 recompute=full"};
    const cost::PriceRequest r = asked_for(asked, names[random() % std::size(names)]);
    const PassTimes times = times_of(r);
    std::vector<double> bytes;
    StageLayers made;
    const auto all = [&](const auto& visit) {
      each_way(made, static_cast<std::size_t>(r.pp), shape.layers, visit);
    };
    all([&](const StageLayers& layers) {
      bytes.push_back(cost::device_bytes(fullest_rank(r, evenly_recomputed(r, layers))));
    });
    std::ranges::sort(bytes);
    const double room = bytes[random() % bytes.size()];
    asked.cluster.device.memory.value *= room / cost::room_bytes(r) * 1.0001;
    double best = 1e300, free = 1e300;
    all([&](const StageLayers& layers) {
      const Stages stages = evenly_recomputed(r, layers);
      const double seconds = slowest_stage(times, stages);
      free = std::min(free, seconds);
      if (cost::device_bytes(fullest_rank(r, stages)) <= room * 1.0001)
        best = std::min(best, seconds);
    });
    const Stages found = best_stages(r, times);
    ASSERT_EQ(std::accumulate(found.layers.begin(), found.layers.end(), 0), shape.layers);
    ASSERT_NEAR(slowest_stage(times, found) / best, 1, 1e-9) << round;
    ASSERT_LE(cost::device_bytes(fullest_rank(r, found)), room * 1.0002) << round;
    uneven += found.layers != pipeline::default_layer_split(shape.layers, r.pp) ? 1 : 0;
    tight += best > free * 1.001 ? 1 : 0;
  }
  EXPECT_GT(uneven, 10);
  EXPECT_GT(tight, 5);
}

// The fewest seconds of a stage with any number of its blocks made again, of those that fit.
double fastest_that_fits(const cost::PriceRequest& r, const PassTimes& times, Stages stages,
                         std::size_t rank, double room) {
  double best = 1e300;
  for (stages.recomputed[rank] = 0; stages.recomputed[rank] <= stages.layers[rank];
       ++stages.recomputed[rank])
    if (cost::device_bytes(rank_memory(r, stages, static_cast<int>(rank))) <= room)
      best = std::min(best, stage_seconds(times, stages, rank));
  return best;
}

// Where blocks may be made again one by one, no other split with any other numbers of them is
// faster. The room lies between what everything kept and everything made again take, so that some
// ranks need it and others do not.
TEST(StageLayers, MakeAgainAsFewBlocksAsTryingAllFinds) {
  std::mt19937 random(5);
  int some = 0, differ = 0;
  for (int round = 0; round < 60; ++round) {
    Asked asked("llama3-8b", "h100:8", 8192, 64);
    cost::ModelShape& shape = asked.shape;
    shape.layers = 8 + static_cast<int>(random() % 5);
    const char* names[] = {"pp4 dp2 zero1", "pp4 dp2 zero1 gpipe", "tp2 pp4 zero1 zb-h1",
                           "pp4 dp2 zero1 recompute=selective"};
    cost::PriceRequest r = asked_for(asked, names[random() % std::size(names)]);
    const model::Drop rest = r.drop;
    const double most = cost::device_bytes(cost::price_memory(r));
    r.drop = model::kWholeBlock;
    const double least = cost::device_bytes(cost::price_memory(r));
    const double room = least + (most - least) * static_cast<double>(random() % 100) / 100;
    asked.cluster.device.memory.value *= room / cost::room_bytes(r) * 1.0001;
    r.drop = rest, r.set_recomputed(1);  // free
    const PassTimes times = times_of(r);
    double best = 1e300;
    StageLayers made;
    each_way(made, 4, shape.layers, [&](const StageLayers& layers) {
      double slowest = 0;
      for (std::size_t rank = 0; rank < 4; ++rank)
        slowest = std::max(
            slowest, fastest_that_fits(r, times, {layers, StageLayers(4, 0)}, rank, room * 1.0001));
      best = std::min(best, slowest);
    });
    const Stages found = best_stages(r, times);
    ASSERT_NEAR(slowest_stage(times, found) / best, 1, 1e-9) << round;
    ASSERT_LE(cost::device_bytes(fullest_rank(r, found)), room * 1.0002) << round;
    some += recompute_of(r, found).blocks.empty() ? 0 : 1;
    differ +=
        std::ranges::adjacent_find(found.recomputed, std::not_equal_to()) != found.recomputed.end();
  }
  EXPECT_GT(some, 35);
  EXPECT_GT(differ, 30);
}

// Blocks of a rank with chunks are dealt to its stages in turn, those of a stage that has no more
// to the others.
TEST(StageLayers, DealBlocksThatAreMadeAgainToChunks) {
  const Asked asked("llama3-8b", "h100:8", 2048, 64);
  cost::PriceRequest r = asked_for(asked, "pp2 dp4 zero1 interleaved vpp2 recompute=full");
  EXPECT_EQ(recompute_of(r, evenly_recomputed(r, {8, 8, 8, 8})),
            spec::Recompute{model::kWholeBlock});
  r.recomputed = 5;
  EXPECT_EQ(evenly_recomputed(r, {8, 8, 8, 8}).recomputed, (StageLayers{3, 3, 2, 2}));
  EXPECT_EQ(evenly_recomputed(r, {2, 8, 8, 8}).recomputed, (StageLayers{2, 3, 3, 2}));
  EXPECT_EQ(evenly_recomputed(r, {2, 8, 2, 8}).recomputed, (StageLayers{2, 3, 2, 2}));
  EXPECT_EQ(most_recomputed(r, {2, 3, 3, 2}), 5);
  const auto back = request_of(asked.question, layout_of(r), 1);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->recomputed, 5);
  r.schedule = &pipeline::row("zbv");  // 0 1 1 0
  EXPECT_EQ(evenly_recomputed(r, {2, 8, 8, 8}).recomputed, (StageLayers{2, 3, 2, 3}));
  EXPECT_EQ(most_recomputed(r, {2, 3, 2, 3}), 5);
}

// Half the vocabulary's head is as dear as a layer and more: its stage takes fewer, and the step is
// shorter.
TEST(StageLayers, AHeavyHeadLeavesItsStageFewer) {
  const Asked asked("llama3-8b", "h100:64", 8192, 512);
  const cost::PriceRequest r = asked_for(asked, "pp4 dp16 zero1");
  const StageLayers found = best_stages(r, times_of(r)).layers,
                    dealt = pipeline::default_layer_split(32, 4);
  EXPECT_EQ(dealt, (StageLayers{8, 8, 8, 8}));
  EXPECT_LT(found.back(), 8);
  const Priced priced{r, cost::price(r)};
  const Finalist uneven = simulate(priced), even = simulate(priced, evenly_recomputed(r, dealt));
  EXPECT_EQ(uneven.layers, found);
  EXPECT_TRUE(even.layers.empty());
  EXPECT_LT(uneven.seconds, 0.95 * even.seconds);
  EXPECT_TRUE(uneven.priced.price.fits);
}

// A pipeline whose memory is even is priced as before.
TEST(StageLayers, MemoryOfEvenStagesIsThePrice) {
  const Asked asked("llama3-70b", "h100:64", 8192, 128);
  const cost::PriceRequest r = asked_for(asked, "tp8 pp4 dp2 zero1");
  EXPECT_DOUBLE_EQ(
      fullest_rank(r, evenly_recomputed(r, pipeline::default_layer_split(80, 4))).allocated(),
      cost::price_memory(r).allocated());
}

}  // namespace
}  // namespace lockstep::planner
