#include "lockstep/metrics/progress.h"

#include <gtest/gtest.h>

namespace lockstep::metrics {
namespace {

const Progress kSome = {412, 1000, 3.21414, 52113.7, {247}};

TEST(Progress, IsALineOfTheWidthThereIs) {
  EXPECT_EQ(progress_line(kSome, 80),
            "   412/1000 [#######..........]   41 %  loss 3.2141  52,113 tokens/s  4 min left");
  EXPECT_EQ(progress_line(kSome, 56), "   412/1000 [####......]   41 %  loss 3.2141  4 min left");
  EXPECT_EQ(progress_line(kSome, 30), "   412/1000   41 %  4 min left");
  EXPECT_EQ(progress_line(kSome, 5), "   41");
  for (int width = 0; width < 140; ++width)
    EXPECT_LE(progress_line(kSome, width).size(), static_cast<std::size_t>(width));
}

TEST(Progress, IsFullAtTheEndAndNotBefore) {
  EXPECT_NE(progress_line({1000, 1000, 1, 1, {0}}, 100).find("[####"), std::string::npos);
  EXPECT_EQ(progress_line({1000, 1000, 1, 1, {0}}, 100).find('.', 0),
            progress_line({1000, 1000, 1, 1, {0}}, 100).find("1.0000") + 1);
  EXPECT_NE(progress_line({999, 1000, 1, 1, {0.01}}, 100).find("99 %"), std::string::npos);
  EXPECT_NE(progress_line({999, 1000, 1, 1, {0.01}}, 100).find(".]"), std::string::npos);
}

// Steady steps are predicted exactly, whatever their size, and a change of speed is learned.
TEST(TimeLeft, FollowsTheSpeedOfLate) {
  TimeLeft left;
  EXPECT_EQ(left.of(100).value, 0);
  for (int step = 1; step <= 20; ++step) left.add(step, Seconds{0.25 * step});
  EXPECT_NEAR(left.of(100).value, 25, 1e-12);
  for (int step = 0; step < 100; ++step) left.add(20, Seconds{10});
  EXPECT_NEAR(left.of(100).value, 50, 0.01);
}

}  // namespace
}  // namespace lockstep::metrics
