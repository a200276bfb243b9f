#include "lockstep/train/calibrate.h"

#include <gtest/gtest.h>

#include "lockstep/comm/local/local.h"
#include "lockstep/cost/measured/calibrated_prices.h"
#include "lockstep/train/predictions.h"
#include "tests/train/tiny.h"

namespace lockstep::train {
namespace {

cost::Calibration calibrated(const spec::Spec& spec, int ranks) {
  const Calibrator calibrator = Calibrator::create(spec, ranks).value();
  EXPECT_EQ(calibrator.ranks(), ranks);
  cost::Calibration made;
  comm::run_local(ranks, [&](comm::World& world) {
    cost::Calibration own = calibrator.run(world, "", Seconds{0.1});
    if (world.rank() == Rank{0}) made = std::move(own);
  });
  return made;
}

// Whatever two ranks can run of the same units has a price, for every op.
TEST(Calibrator, KnowsTheOpsOfEveryLayoutOfItsUnits) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"dp2",
       {"dp2 zero0", "dp2 zero1", "dp2 zero2", "dp2 zero3", "dp2 zero3 recompute=full", "pp2 dp1",
        "pp2 dp1 zb-h1", "pp2 dp1 zbv vpp2"}},
      {"tp2 dp1", {"tp2 dp1", "tp2 dp1 zero3 recompute=full"}},
      {"tp2 nosp dp1", {"tp2 nosp dp1"}},
      {"pp2 dp1 recompute=selective+full:1+0",
       {"dp2 recompute=selective", "pp2 dp1 recompute=selective+full:1+0"}}};
  for (const bool tied : {false, true})
    for (const auto& [own, layouts] : cases) {
      const spec::Spec spec = tiny_spec(tied, DType::kF32);
      const cost::Calibration made = calibrated(job_of(spec, own).spec, 2);
      EXPECT_GE(made.slowdown, 1);
      EXPECT_EQ(cost::read_calibration(write_calibration(made), "").value(), made);
      for (const char* layout : layouts) {
        const Job job = job_of(spec, layout);
        const cost::StepSizes sizes = sizes_of(job, Rank{0});
        EXPECT_TRUE(
            check_same(made.print, cost::fingerprint(job.model.config, sizes.unit), "", "").ok());
        const auto prices = cost::CalibratedPrices::create(made, job.program, job.model, sizes,
                                                           job.mesh, "cal.json");
        ASSERT_TRUE(prices.ok()) << layout << ": " << prices.error().message;
        for (const program::Op& op : job.program.lists[0])
          if (op.unit > 0 && op.kind == program::OpKind::kForward && op.unit < 4) {
            EXPECT_GT(prices->time({0}, op), Seconds{0}) << layout;
          }
      }
    }
}

// Layouts other than the run's own have groups of other sizes.
TEST(Calibrator, KnowsGroupsOfEverySizeItsRanksCanHave) {
  const cost::Calibration made = calibrated(job_of(tiny_spec(false, DType::kF32), "dp8").spec, 8);
  for (const std::int64_t members : {2, 4, 8})
    for (const comm::OpKind kind :
         {comm::OpKind::kAllGather, comm::OpKind::kReduceScatter, comm::OpKind::kAllReduce})
      EXPECT_NE(made.find(kind, members), nullptr) << to_text(kind) << " of " << members;
}

// However little time there is, every probe runs once; then what is spent ends it.
TEST(Calibrator, TakesOneRoundWhereThatIsMoreThanItsBudget) {
  const Calibrator calibrator =
      Calibrator::create(job_of(tiny_spec(false, DType::kF32), "dp1").spec, 1).value();
  const auto samples = [&](double budget) {
    std::int64_t count = 0;
    comm::run_local(1, [&](comm::World& world) {
      count = calibrator.run(world, "", Seconds{budget}).passes.at("block.F").samples;
    });
    return count;
  };
  const std::int64_t least = samples(1e-9);
  EXPECT_GT(least, 0);
  EXPECT_GE(samples(1.0), 3 * least);  // three rounds at least
}

TEST(Calibrator, TakesAsManyRanksAsThereAreCores) {
  const spec::Spec eight = job_of(tiny_spec(false, DType::kF32), "tp2 pp2 dp2").spec;
  EXPECT_EQ(Calibrator::create(eight, 64)->ranks(), 8);
  EXPECT_EQ(Calibrator::create(eight, 5)->ranks(), 4);
  const auto refused = Calibrator::create(eight, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "tp x cp = 2 x 1 needs as many ranks at once, but there are 1 cores");
}

}  // namespace
}  // namespace lockstep::train
