#include "lockstep/pipeline/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

namespace lockstep::pipeline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Units that take time and room; a stage has something of its own and so many copies of what units
// need.
struct Pipeline {
  std::vector<double> seconds, bytes;       // per unit
  std::vector<double> own_seconds, copies;  // per stage
  double room = 0;

  int units() const { return static_cast<int>(seconds.size()); }
  int stages() const { return static_cast<int>(copies.size()); }

  double cost(int stage, int begin, int end) const {
    const auto s = static_cast<std::size_t>(stage);
    double time = own_seconds[s], used = 0;
    for (auto u = static_cast<std::size_t>(begin); u < static_cast<std::size_t>(end); ++u)
      time += seconds[u], used += copies[s] * bytes[u];
    return used <= room ? time : kInfinity;
  }
};

Pipeline random_pipeline(std::mt19937& random, int round) {
  const auto upto = [&](unsigned most) { return static_cast<double>(random() % (most + 1)); };
  Pipeline made;
  const auto units = 1 + random() % 10, stages = 1 + random() % units;
  for (std::size_t i = 0; i < units; ++i) {
    made.seconds.push_back(upto(round % 2 == 0 ? 3 : 50));
    made.bytes.push_back(upto(4));
  }
  for (std::size_t i = 0; i < stages; ++i) {
    made.own_seconds.push_back(i == 0 || i + 1 == stages ? upto(20) : 0);
    made.copies.push_back(static_cast<double>(stages - i));  // as 1f1b holds them
  }
  made.room = round % 3 == 0 ? 1e9 : upto(40);
  return made;
}

// Every split, one after the other: the cost of the dearest stage of the best.
double best_by_trying(const Pipeline& p, int stage, int begin) {
  if (stage + 1 == p.stages()) return p.cost(stage, begin, p.units());
  double best = kInfinity;
  for (int end = begin + 1; end + p.stages() - stage - 1 <= p.units(); ++end)
    best = std::min(best, std::max(p.cost(stage, begin, end), best_by_trying(p, stage + 1, end)));
  return best;
}

TEST(BalanceUnits, TheDearestStageIsAsCheapAsCanBe) {
  std::mt19937 random(7);
  int tight = 0, without = 0;
  for (int round = 0; round < 1500; ++round) {
    Pipeline p = random_pipeline(random, round);
    const double best = best_by_trying(p, 0, 0);
    const auto begin = balance_units(p.units(), p.stages(),
                                     [&](int s, int from, int to) { return p.cost(s, from, to); });
    ASSERT_EQ(begin.has_value(), best < kInfinity) << round;
    without += begin ? 0 : 1;
    if (!begin) continue;
    ASSERT_EQ(static_cast<int>(begin->size()), p.stages() + 1);
    EXPECT_EQ(begin->front(), 0);
    EXPECT_EQ(begin->back(), p.units());
    double dearest = 0;
    for (int stage = 0; stage < p.stages(); ++stage) {
      const auto s = static_cast<std::size_t>(stage);
      ASSERT_LT((*begin)[s], (*begin)[s + 1]);
      dearest = std::max(dearest, p.cost(stage, (*begin)[s], (*begin)[s + 1]));
    }
    ASSERT_EQ(dearest, best) << round;
    p.room = kInfinity;
    tight += best_by_trying(p, 0, 0) < best ? 1 : 0;
  }
  EXPECT_GT(tight, 30);  // room decided
  EXPECT_GT(without, 30);
}

// 30 blocks over 4 stages, a head as dear as three blocks: the first stages take most.
TEST(BalanceUnits, EarlyStagesAreFilledFirst) {
  std::vector<double> seconds(32, 1);
  seconds.front() = 0, seconds.back() = 3;
  const Pipeline p{seconds, std::vector<double>(32), std::vector<double>(4), std::vector<double>(4),
                   0};
  EXPECT_EQ(*balance_units(32, 4, [&](int s, int from, int to) { return p.cost(s, from, to); }),
            (std::vector<std::int32_t>{0, 10, 18, 26, 32}));
}

}  // namespace
}  // namespace lockstep::pipeline
