#include "lockstep/planner/lowered.h"

#include <gtest/gtest.h>

#include "lockstep/cost/analytic/collective_time.h"
#include "lockstep/planner/layout_of.h"
#include "tests/planner/questions.h"
#include "tests/support/total_params.h"

namespace lockstep::planner {
namespace {

Finalist timed(const Asked& asked, const char* layout, std::int64_t microbatch = 1) {
  const auto found = time_layout(asked.question, *spec::parse_layout(layout), microbatch);
  EXPECT_TRUE(found.ok()) << layout;
  return *found;
}

// Without a data axis nothing is exchanged but between stages, and where that slows no computation
// the two simulations are of the same step; sends wait for each other in one of them alone.
TEST(Lowered, AgreesWithStagesWhereOnlyStagesMeet) {
  Asked asked("llama3-70b", "h100:64", 8192, 64);
  cluster::DeviceRates rates = *asked.question.rates;
  rates.at(cluster::Term::kOverlapTax).value = 0;
  asked.question.rates = &rates;
  for (const char* name : {"tp8 pp8 1f1b", "tp8 pp8 gpipe", "tp8 pp8 interleaved vpp5",
                           "tp8 pp8 zb-h1", "tp8 pp8 zbv vpp2", "tp8 pp8 1f1b recompute=full"}) {
    const Finalist one = timed(asked, name);
    const auto units = lowered_seconds(one);
    ASSERT_TRUE(units.has_value()) << name;
    EXPECT_NEAR(*units / one.seconds, 1, 0.01) << name;
  }
}

// A step cut to fewer microbatches takes what the whole one does.
TEST(Lowered, ShorteningChangesNothing) {
  const Asked asked("llama3-8b", "h100:64", 8192, 2048);
  for (const char* name : {"dp64 zero3", "dp64 zero1", "pp4 dp16 zero1", "pp4 dp16 zero3",
                           "tp4 pp4 dp4 zero1 interleaved vpp4"}) {
    const Finalist one = timed(asked, name);
    const double whole = lowered_seconds(one, 1 << 30).value();
    EXPECT_NEAR(lowered_seconds(one, 1 << 9).value() / whole, 1, 1e-3) << name;
  }
}

// What data ranks exchange is hidden or not, but never free, and never takes longer than all of it
// after the rest.
TEST(Lowered, ExchangesHideUnderComputation) {
  const Asked asked("llama3-8b", "h100:64", 8192, 512);
  for (const char* name : {"dp64 zero0", "dp64 zero1", "dp64 zero3", "dp8x8 zero3"}) {
    const Finalist one = timed(asked, name);
    const cost::StepTime& t = one.priced.price.time;
    const double units = lowered_seconds(one).value();
    EXPECT_GT(units, t.forward + t.backward + t.head) << name;
    EXPECT_LT(units, 1.3 * one.seconds) << name;
  }
}

// On a network a thousand times slower a step takes what its gradients and weights take to be
// exchanged, and little more.
TEST(Lowered, ASlowNetworkIsAllThereIs) {
  Asked asked("llama3-8b", "h100:64", 8192, 512);
  asked.cluster.tiers.back().bytes_per_s.value /= 1000;
  const cost::Fabric fabric{&asked.cluster, asked.question.rates};
  const double parameters = total_params(asked.shape);
  const double reduce = gather_seconds(fabric, 4 * parameters, {64, 1});
  const double gather = gather_seconds(fabric, 2 * parameters, {64, 1});
  const std::pair<const char*, double> cases[] = {{"dp64 zero0", 2 * reduce},
                                                  {"dp64 zero1", reduce + gather},
                                                  {"dp64 zero3", 8 * (reduce + 2 * gather)}};
  for (const auto& [name, seconds] : cases) {
    const Finalist one = timed(asked, name);
    const double factor = slower_devices(one.priced.price.time);
    EXPECT_NEAR(lowered_seconds(one).value() / factor / seconds, 1, 0.05) << name;
  }
}

TEST(Lowered, TheBestThreeAreTimed) {
  const Asked asked("llama3-405b", "h100:16384", 8192, 2048);
  std::vector<Finalist> found = simulate(walk(Lattice(asked.question), 8).best);
  time_by_units(found);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i].by_units.has_value(), i < 3) << i;
}

}  // namespace
}  // namespace lockstep::planner
