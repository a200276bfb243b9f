#include "lockstep/backtest/adapt.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/backtest/published.h"

namespace lockstep::backtest {
namespace {

Scores scores_of(RunTable& table) {
  read_published(table);
  return score(table, {});
}

// Without known rows the P50 is the prediction, so its errors are those of the score.
TEST(Adapt, NothingKnownIsThePrediction) {
  RunTable table;
  const Scores scores = scores_of(table);
  const AdaptScore none = adapt(scores, {{0}, 50, 1}).front();
  std::vector<double> time, memory;
  for (const ScoredRun& row : scores.runs) {
    const SourceScore& source =
        *std::ranges::find(scores.sources, row.run->text("source"), &SourceScore::source);
    if (row.in_headline && source.time.rows > 1) time.push_back(*row.time_error);
    if (row.memory_error && source.memory.rows > 1) memory.push_back(*row.memory_error);
  }
  EXPECT_EQ(none.time.all.error.rows, static_cast<int>(time.size()));
  EXPECT_NEAR(none.time.all.error.median, summarize(time).median, 1e-12);
  EXPECT_NEAR(none.time.all.error.bias, summarize(time).bias, 1e-12);
  EXPECT_NEAR(none.memory.all.error.bias, summarize(memory).bias, 1e-12);
  EXPECT_NEAR(none.memory.all.error.p90, summarize(memory).p90, 1e-12);
}

// Every draw predicts all rows but the k it knows, of sources that have more than k + 1.
TEST(Adapt, PredictsAllOthers) {
  RunTable table;
  const Scores scores = scores_of(table);
  const AdaptScore two = adapt(scores, {{2}, 7, 1}).front();
  int expected = 0;
  for (const SourceScore& source : scores.sources)
    if (source.time.rows > 3) expected += 7 * (source.time.rows - 2);
  EXPECT_EQ(two.time.all.error.rows, expected);
  for (const SourceScore& source : scores.sources) {
    const auto& out = two.time.left_out;
    const bool is_out =
        std::ranges::find(out, std::pair(source.source, source.time.rows)) != out.end();
    EXPECT_EQ(is_out, source.time.rows > 0 && source.time.rows <= 3) << source.source;
  }
  ASSERT_FALSE(two.time.sources.empty());
}

// SimuMax's 43 runs were off by one factor more than by anything else; knowing some of them helps.
TEST(Adapt, KnownRowsHelp) {
  RunTable table;
  read_published(table);
  Scores scores = score(table, {});
  for (ScoredRun& row : scores.runs)
    if (row.time_error) *row.time_error += 0.4;
  const auto made = adapt(scores, {{0, 1, 4}, 40, 1});
  EXPECT_GT(made[0].time.all.error.median, 0.35);
  EXPECT_LT(made[1].time.all.error.median, 0.1);
  EXPECT_LT(made[2].time.all.error.median, made[1].time.all.error.median);
}

TEST(Adapt, SeedsDecideTheDraws) {
  RunTable table;
  const Scores scores = scores_of(table);
  const auto median = [&](std::uint64_t seed) {
    return adapt(scores, {{1}, 20, seed}).front().time.all.error.median;
  };
  EXPECT_EQ(median(3), median(3));
  EXPECT_NE(median(3), median(4));
}

}  // namespace
}  // namespace lockstep::backtest
