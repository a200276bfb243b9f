// What a chart shows of a long curve; tests/oracles/report_test.py reads charts back.
#include "lockstep/draw/curves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::draw {
namespace {

std::vector<CurvePoint> wave(int steps) {
  std::vector<CurvePoint> points;
  for (int i = 1; i <= steps; ++i) points.push_back({1.0 * i, std::sin(i * 0.7) + 0.001 * i});
  return points;
}

TEST(Curves, ThinnedKeepSpikesEndsAndWhatIsNotFinite) {
  for (const int steps : {301, 302, 1000, 99'999}) {
    std::vector<CurvePoint> points = wave(steps);
    points[200].y = 1e6, points[250].y = -1e6;
    points[150].y = std::numeric_limits<double>::quiet_NaN();
    const std::vector<CurvePoint> kept = thinned(points, 300);
    EXPECT_LE(kept.size(), 300u) << steps;
    EXPECT_EQ(kept.front().x, 1);
    EXPECT_EQ(kept.back().x, steps);
    const auto has = [&](double x) { return std::ranges::count(kept, x, &CurvePoint::x) == 1; };
    EXPECT_TRUE(has(151) && has(201) && has(251)) << steps;
    EXPECT_TRUE(std::ranges::is_sorted(kept, {}, &CurvePoint::x));
  }
  EXPECT_EQ(thinned(wave(300), 300).size(), 300u);
}

TEST(Curves, OfNothingOfOnePointAndOfOneValueAreDrawn) {
  const auto svg = [](std::vector<CurvePoint> points) {
    return curves_svg({.title = "Loss", .may_be_log = true, .curves = {{"", 0, false, points}}});
  };
  EXPECT_NE(svg({}).find("no step yet"), std::string::npos);
  for (const auto& points : std::vector<std::vector<CurvePoint>>{{{1, 2}},
                                                                 {{1, 0}, {2, 0}},
                                                                 {{1, 5}, {2, 5}},
                                                                 {{1, INFINITY}},
                                                                 {{1, NAN}, {2, 1e-300}}}) {
    const std::string drawn = svg(points);
    EXPECT_EQ(drawn.find("cx=\"nan"), std::string::npos);
    EXPECT_EQ(drawn.find("inf\" cy"), std::string::npos);
    EXPECT_NE(drawn.find("data-y"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::draw
