#include "lockstep/planner/finalists.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/pipeline/layer_split.h"
#include "lockstep/planner/explain.h"
#include "lockstep/planner/layout_of.h"
#include "lockstep/planner/step_quantiles.h"
#include "tests/planner/questions.h"

namespace lockstep::planner {
namespace {

Priced priced(const Asked& asked, const char* layout, std::int64_t microbatch) {
  const auto request = request_of(asked.question, *spec::parse_layout(layout), microbatch);
  EXPECT_TRUE(request.ok());
  return {*request, cost::price(*request)};
}

// Without a pipeline nothing is left to simulate.
TEST(Finalists, WithoutAPipelineAreAsPriced) {
  const Asked asked("llama3-8b", "h100:64", 8192, 512);
  const Priced one = priced(asked, "dp64 zero1", 1);
  const Finalist found = simulate(one);
  EXPECT_FALSE(found.simulated);
  EXPECT_EQ(found.seconds, one.seconds());
}

// A bubble by its formula and by the schedule itself are the same where stages are nearly even; a
// shortened simulation is the long one.
TEST(Finalists, AgreeWithTheClosedForm) {
  for (const std::int64_t batch : {1024, 65536}) {
    const Asked asked("llama3-70b", "h100:512", 8192, batch);
    for (const char* name : {"tp8 pp4 dp16 zero1 1f1b", "tp8 pp4 dp16 zero1 interleaved vpp5"}) {
      const Priced one = priced(asked, name, 1);
      const Finalist found = simulate(one);
      ASSERT_TRUE(found.simulated) << name;
      EXPECT_NEAR(found.seconds / one.seconds(), 1, 0.06) << name << " " << batch;
    }
  }
}

// Passes for a picture are those that gave a finalist its time, and a shorter step loses as much.
TEST(Finalists, PassesAreThoseOfItsTime) {
  const Asked asked("llama3-70b", "h100:512", 8192, 1024);
  for (const char* name : {"tp8 pp4 dp16 zero1 1f1b", "tp8 pp4 dp16 zero1 interleaved vpp5",
                           "tp8 pp4 dp16 zero1 zb-h1"}) {
    const Finalist found = simulate(priced(asked, name, 1));
    const auto all = timed_passes(found, 1 << 20), some = timed_passes(found, 16);
    ASSERT_TRUE(all && some) << name;
    EXPECT_EQ(all->schedule.shape().microbatches, 64) << name;
    EXPECT_EQ(some->schedule.shape().microbatches, 16) << name;
    EXPECT_NEAR(all->times.bubble().value, found.bubble, 1e-9 * found.seconds) << name;
    EXPECT_NEAR(some->times.bubble().value, found.bubble, 0.01 * found.seconds) << name;
  }
  EXPECT_FALSE(timed_passes(simulate(priced(asked, "tp8 dp64 zero3", 1)), 16)) << "no pipeline";
}

// Memory for a few blocks less than all: the first stages make some again, the last none; every
// stage fits, the step is shorter than with as many everywhere, and the layout by its name is the
// same one.
// Faster devices change which rank is busiest, and with it which terms a price has, but no step is
// slower for that. The head is on the last rank, which has a layer less.
TEST(Finalists, AnotherBusiestRankMakesNoStepSlower) {
  const Asked asked("deepseek-v2-lite", "h200:8192", 1024, 32768);
  const Priced one =
      priced(asked, "tp8 cp2 pp4 dp128 ep64 zero3 1f1b m256 cp_comm_type=ring recompute=full", 1);
  const Finalist before = simulate(one);
  for (const double factor : {1.1, 2.0, 16.0}) {
    cluster::Cluster faster = asked.cluster;
    change_cluster(faster, {Resource::kFlops, factor});
    cost::PriceRequest more = before.priced.request;
    more.cluster = &faster;
    const Finalist after = simulate({more, cost::price(more)}, stages_of(before));
    EXPECT_LE(after.seconds, before.seconds) << factor;
  }
}

TEST(Finalists, MakeAgainWhatEachStageNeeds) {
  Asked asked("llama3-70b", "h100:32", 8192, 64);
  Question& q = asked.question;
  q.schedules = {&pipeline::row("1f1b")}, q.tp = 4, q.pp = 8, q.cp = 1;
  asked.cluster.device.memory.value *= 0.72;
  const Walk walked = walk(Lattice(q), 1);
  ASSERT_EQ(walked.best.size(), 1U);
  const Priced& one = walked.best.front();
  ASSERT_GT(one.request.recomputed, 0);
  const Finalist found = simulate(one);
  const StageLayers dealt = pipeline::default_layer_split(80, 8);
  const Finalist even = simulate(one, evenly_recomputed(one.request, dealt));
  const StageLayers& recomputed = found.recomputed;
  ASSERT_EQ(recomputed.size(), 8U);
  EXPECT_GT(recomputed.front(), 0);
  EXPECT_EQ(recomputed.back(), 0);
  EXPECT_TRUE(found.priced.price.fits);
  EXPECT_LT(found.seconds, even.seconds * 0.99);
  const auto again = time_layout(q, *spec::parse_layout(to_text(layout_of(found))), 1);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->seconds, found.seconds) << to_text(layout_of(found));
  EXPECT_EQ(again->priced.price.memory.allocated(), found.priced.price.memory.allocated());
}

TEST(Finalists, ComeFastestFirst) {
  const Asked asked("llama3-405b", "h100:16384", 8192, 2048);
  const std::vector<Finalist> found = simulate(walk(Lattice(asked.question), 64).best);
  ASSERT_FALSE(found.empty());
  for (std::size_t i = 1; i < found.size(); ++i)
    EXPECT_LE(found[i - 1].seconds, found[i].seconds * 1.0021);
}

// Of those that prices cannot tell apart the simplest comes first, and only of those.
TEST(Finalists, OfTiesTheFewestAxesAreChosen) {
  const Asked asked("llama3-8b", "h100:64", 8192, 512);
  const auto timed = [&](const char* layout, double seconds) {
    return Finalist{.priced = priced(asked, layout, 1), .seconds = seconds};
  };
  std::vector<Finalist> near = {timed("tp2 dp32 zero1", 1.0009),
                                timed("tp2 pp2 dp16 zero1 1f1b", 1), timed("dp64 zero1", 1.0011)};
  rank(near);
  EXPECT_EQ(near[0].seconds, 1.0009);
  EXPECT_EQ(near[1].seconds, 1);
  EXPECT_EQ(near[2].seconds, 1.0011);
  const double error = published_errors(asked.question.rates->calibrated).median / 100;
  EXPECT_TRUE(is_tied(timed("dp64 zero1", 1), timed("dp64 zero1", std::exp(error * 0.999))));
  EXPECT_FALSE(is_tied(timed("dp64 zero1", 1), timed("dp64 zero1", std::exp(error * 1.001))));
}

}  // namespace
}  // namespace lockstep::planner
