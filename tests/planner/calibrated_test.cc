#include "lockstep/planner/calibrated.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "lockstep/planner/layout_of.h"
#include "lockstep/spec/step.h"
#include "tests/cost/measured/calibrations.h"
#include "tests/planner/questions.h"

namespace lockstep::planner {
namespace {

constexpr std::int64_t kSeq = 64, kBatch = 8;

// Two cores, and a calibration for each microbatch and tensor degree asked for.
class Machine : public ::testing::Test {
 protected:
  Machine() : asked_("llama-tiny", "cpu-gloo:2", kSeq, kBatch) {
    asked_.question.cp = asked_.question.ep = 1;
  }

  static model::ModelConfig model() { return model::find("llama-tiny")->config; }

  cost::CalibrationFile known(std::int64_t microbatch, std::int64_t tp) const {
    spec::Spec spec;
    spec.model = model();
    spec.batch = {kSeq, kBatch, microbatch};
    spec.layout.degrees.tp = tp;
    spec.train.dtype = DType::kF32;
    return known(spec);
  }

  static cost::CalibrationFile known(const spec::Spec& spec) {
    cost::CalibrationFile times{"cal.json", cost::some_calibration(2)};
    const model::UnitSizes unit = spec::step_sizes(spec).unit;
    times.calibration.print = cost::fingerprint(spec.model, unit);
    add_parts(times.calibration, *model::describe(spec.model), unit);
    return times;
  }

  CalibratedSearch search(std::vector<cost::CalibrationFile> times) const {
    return CalibratedSearch::create(asked_.question, model(), DType::kF32, std::move(times))
        .value();
  }

  Asked asked_;
};

TEST_F(Machine, EveryLayoutIsTimedOrCounted) {
  const CalibratedSearch some = search({known(2, 1), known(2, 2)});
  const CalibratedWalk found = some.walk();
  std::int64_t unknown = 0;
  for (const auto& [what, layouts] : found.unknown) unknown += layouts;
  EXPECT_EQ(found.timed + unknown, found.layouts);
  EXPECT_EQ(found.layouts, static_cast<std::int64_t>(some.layouts().size()));
  EXPECT_EQ(found.timed, static_cast<std::int64_t>(found.best.size()));
  EXPECT_TRUE(found.unknown.contains("microbatch 4 with tp 1")) << found.unknown.begin()->first;
  std::set<std::string> names;
  for (const TimedLayout& one : found.best) {
    const cost::PriceRequest& r = one.finalist.priced.request;
    EXPECT_EQ(r.microbatch, 2);
    names.insert(to_text(layout_of(r)));
  }
  EXPECT_EQ(names.size(), found.best.size());
  EXPECT_GT(names.size(), 20U);
}

// What it asks to be measured is enough, and none of it is too much.
TEST_F(Machine, KnowsWhatToMeasure) {
  const std::vector<spec::Spec> asked = search({}).unmeasured();
  std::vector<cost::CalibrationFile> times;
  for (const spec::Spec& spec : asked) times.push_back(known(spec));
  EXPECT_EQ(asked.size(),
            16U);  // microbatches 1, 2, 4 and 8, tp 1 and 2, with and without cheap rows
  EXPECT_TRUE(std::ranges::is_sorted(asked, std::greater(),
                                     [](const spec::Spec& spec) { return spec.batch.microbatch; }));
  const CalibratedSearch all = search(times);
  EXPECT_TRUE(all.unmeasured().empty());
  const CalibratedWalk found = all.walk();
  EXPECT_EQ(found.timed, found.layouts);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    std::vector<cost::CalibrationFile> others = times;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    const std::vector<spec::Spec> missing = search(others).unmeasured();
    ASSERT_EQ(missing.size(), 1U);
    EXPECT_EQ(known(missing[0]).calibration.print, times[i].calibration.print);
  }
}

TEST_F(Machine, TermsAndClassesAddUpToTheSimulatedStep) {
  const CalibratedSearch some = search({known(1, 1), known(2, 1), known(2, 2)});
  double before = 0;
  for (const TimedLayout& one : some.walk().best) {
    const cost::PriceRequest& r = one.finalist.priced.request;
    const std::string name = to_text(layout_of(r));
    const auto again = some.time(layout_of(r), static_cast<std::int64_t>(r.microbatch));
    ASSERT_TRUE(again.ok()) << name;
    EXPECT_EQ(again->finalist.seconds, one.finalist.seconds) << name;
    EXPECT_GE(one.finalist.seconds, before);
    before = one.finalist.seconds;
    const double sum = one.finalist.priced.price.time.total();
    EXPECT_NEAR(sum, one.finalist.seconds, 1e-9 * sum) << name;
    EXPECT_EQ(one.stages.size(), static_cast<std::size_t>(r.pp)) << name;
    for (const cost::Memory& held : one.stages) {
      EXPECT_GT(held.weights, 0) << name;
      EXPECT_GE(held.transients, 0) << name;
      EXPECT_LE(held.allocated(), one.finalist.priced.price.memory.allocated()) << name;
    }
  }
}

// The only communication of one term is that of its axis.
TEST_F(Machine, AxesHaveTheirOwnTerms) {
  const CalibratedSearch some = search({known(2, 1)});
  for (const TimedLayout& one : some.walk().best) {
    const cost::PriceRequest& r = one.finalist.priced.request;
    const cost::StepTime& time = one.finalist.priced.price.time;
    EXPECT_EQ(time.data > 0, r.dp > 1) << to_text(layout_of(r));
    EXPECT_EQ(time.pipe > 0, r.pp > 1) << to_text(layout_of(r));
    EXPECT_EQ(time.recompute > 0, r.drop.block) << to_text(layout_of(r));
  }
}

TEST_F(Machine, RefusesTimesOfAnotherRun) {
  const auto refused = [&](const cost::CalibrationFile& times, const std::string& says) {
    const auto made =
        CalibratedSearch::create(asked_.question, model(), DType::kF32, {known(1, 1), times});
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.error().message.find(says), std::string::npos) << made.error().message;
  };
  const auto changed = [&](const std::string& name) {
    cost::CalibrationFile times = known(1, 1);
    for (cost::Trait& trait : times.calibration.print)
      if (trait.name == name) trait.value = "77";
    return times;
  };
  refused(changed("model.hidden"), "model.hidden = 77");
  refused(changed("batch.seq"), "batch.seq = 77, asked for is 64");
  refused(changed("train.dtype"), "train.dtype = 77, asked for is f32");
  cost::CalibrationFile alone = known(1, 1);
  alone.name = "alone.json";
  alone.calibration.ranks = 1;
  refused(
      alone,
      "`alone.json` was measured with ranks = 1 (threads), `cal.json` with ranks = 2 (threads)");
}

TEST_F(Machine, RefusesLayoutsItDoesNotKnow) {
  const CalibratedSearch some = search({known(2, 1)});
  const auto unknown = some.time(spec::parse_layout("dp2 zero1").value(), 4);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("microbatch 4 with tp 1"), std::string::npos);
  const auto illegal = some.time(spec::parse_layout("pp2 dp1 zero1").value(), 3);
  EXPECT_FALSE(illegal.ok());
}

TEST_F(Machine, RefusesMoreThanCanBeTimed) {
  Asked big("llama3-405b", "h100:16384", 8192, 2048);
  const auto made =
      CalibratedSearch::create(big.question, model::find("llama3-405b")->config, DType::kF32, {});
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("the limit is 20,000"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::planner
