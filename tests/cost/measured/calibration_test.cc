#include "lockstep/cost/measured/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "tests/cost/measured/calibrations.h"

namespace lockstep::cost {
namespace {

const std::string kCalibration = "cal.json";

TEST(CalibrationFile, ReadsBackToTheSameBits) {
  const Calibration written = some_calibration(2);
  const std::string text = write_calibration(written);
  const Result<Calibration> read = read_calibration(text, kCalibration);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, written);
  EXPECT_EQ(write_calibration(*read), text);
}

// Every member that is taken away is named, however deep it lies; nothing is read as 0.
TEST(CalibrationFile, RefusesWhatIsNotWhole) {
  const Json whole = Json::parse(write_calibration(some_calibration(2))).value();
  const auto error = [](const Json& json) {
    const Result<Calibration> read = read_calibration(json.dump(), kCalibration);
    return read.ok() ? "" : read.error().message;
  };
  for (const Json::Member& member : whole.members()) {
    Json without = Json::object();
    for (const Json::Member& other : whole.members())
      if (other.key != member.key) without.set(other.key, other.value);
    EXPECT_EQ(error(without), member.key == "schema"
                                  ? "`cal.json` has no schema, where "
                                    "lockstep.calibration/2 is expected"
                                  : "`cal.json`: `" + member.key + "` is missing");
  }
  Json passes = *whole.find("passes");
  passes.set("block.F", Json::object({{"seconds", "1"}, {"spread", 0.0}, {"samples", 1}}));
  EXPECT_EQ(error(Json(whole).set("passes", passes)),
            "`cal.json`: `passes.block.F.seconds` is no number of 0 or more");
  Json collectives = *whole.find("collectives_per_byte");
  collectives.items()[1].set("kind", "gossip");
  EXPECT_EQ(error(Json(whole).set("collectives_per_byte", collectives)),
            "`cal.json`: `collectives_per_byte[1].kind` is no collective that is priced: gossip");
  EXPECT_EQ(error(Json(whole).set("slowdown", 0.5)), "`cal.json`: `slowdown` is below 1");
  EXPECT_EQ(error(Json(whole).set("schema", "lockstep.calibration/3")),
            "`cal.json` is of schema lockstep.calibration/3, where this program reads "
            "lockstep.calibration/2");
  EXPECT_EQ(error(Json(whole).set("update_per_element", 3)),
            "`cal.json`: `update_per_element` is no object");
  EXPECT_FALSE(read_calibration("", kCalibration).ok());
}

TEST(PassName, TellsApartWhatTakesDifferentTimes) {
  const model::Model model = tiny();
  program::StepShape step;
  step.stage_begin = {0, model.num_units()};
  const auto name = [&](program::OpKind kind, int unit, int microbatch) {
    program::Op op;
    op.kind = kind;
    op.unit = unit;
    op.microbatch = microbatch;
    return pass_name(step, model.unit(unit), op);
  };
  using program::OpKind;
  EXPECT_EQ(name(OpKind::kBackward, 1, 0), "block.B.first");
  EXPECT_EQ(name(OpKind::kBackward, 1, 1), "block.B");
  EXPECT_EQ(name(OpKind::kWeightGrad, 0, 0), "embed.W.first");
  EXPECT_EQ(name(OpKind::kInputGrad, 1, 0), "block.I");
  EXPECT_EQ(name(OpKind::kForward, 1, 0), "block.F");
  EXPECT_EQ(name(OpKind::kUpdate, 1, -1), "");
  step.period = program::Period::kMicrobatch;
  EXPECT_EQ(name(OpKind::kBackward, 1, 1), "block.B.first");
  step.recompute.assign(static_cast<std::size_t>(model.num_units()), true);
  EXPECT_EQ(name(OpKind::kForward, 1, 0), "block.C");
  EXPECT_EQ(name(OpKind::kForward, step.head(), 0), "head.F");
}

TEST(FitLine, FindsALineThroughItsPoints) {
  std::mt19937 random(7);
  for (int i = 0; i < 100; ++i) {
    const double alpha = static_cast<double>(random() % 1000) / 3;
    const auto beta = static_cast<double>(1 + random() % 100);
    std::vector<std::pair<double, double>> points;
    for (const double x : {1.0, 10.0, 1000.0, 3e5}) points.emplace_back(x, alpha + beta * x);
    const Line line = fit_line(points);
    EXPECT_NEAR(line.alpha, alpha, 1e-9 * (alpha + beta));
    EXPECT_NEAR(line.beta, beta, 1e-9 * beta);
    EXPECT_LT(line.residual, 1e-9);
    EXPECT_EQ(line.points, 4);
  }
}

// Neither a start nor a rate below nothing, whatever the points; and no line of these signs is
// nearer.
TEST(FitLine, IsTheNearestOfThoseThatMakeSense) {
  std::mt19937 random(11);
  const auto distance = [](const Line& line, const auto& points) {
    double sum = 0;
    for (const auto& [x, y] : points) sum += std::pow(line.at(x).value / y - 1, 2);
    return sum;
  };
  for (int i = 0; i < 200; ++i) {
    std::vector<std::pair<double, double>> points;
    const auto number = [&] { return static_cast<double>(1 + random() % 50); };
    for (int k = 0; k < 4; ++k) points.emplace_back(number(), number());
    const Line line = fit_line(points);
    EXPECT_GE(line.alpha, 0);
    EXPECT_GE(line.beta, 0);
    const double best = distance(line, points);
    for (const double da : {-0.1, 0.0, 0.1})
      for (const double db : {-0.01, 0.0, 0.01}) {
        const Line other = {std::max(0.0, line.alpha + da), std::max(0.0, line.beta + db), 0, 0};
        EXPECT_GE(distance(other, points), best - 1e-9);
      }
  }
}

TEST(FitLine, OfOneSizeIsARate) {
  const Line line = fit_line(std::vector<std::pair<double, double>>{{4, 2}, {4, 2}});
  EXPECT_EQ(line.alpha, 0);
  EXPECT_EQ(line.at(8), Seconds{4});
  EXPECT_EQ(fit_line({}), Line{});
}

}  // namespace
}  // namespace lockstep::cost
