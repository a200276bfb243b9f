#include "lockstep/backtest/run_request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/backtest/published.h"
#include "tests/support/total_params.h"

namespace lockstep::backtest {
namespace {

const PublishedRun& run_of(const RunTable& table, std::string_view id) {
  for (const PublishedRun& run : table.rows)
    if (run.text("id") == id) return run;
  ADD_FAILURE() << id;
  return table.rows.front();
}

// What a row says is what is priced.
TEST(RunRequest, AsTheRowSays) {
  RunTable table;
  read_published(table);
  const auto request = request_of(run_of(table, "mlm-korth-003"));
  ASSERT_TRUE(request.ok());
  ASSERT_EQ(request->candidates.size(), 1u);
  const cost::PriceRequest& r = request->candidates.front();
  EXPECT_EQ(r.tp, 8);
  EXPECT_EQ(r.pp, 8);
  EXPECT_EQ(r.chunks, 3);
  EXPECT_EQ(r.microbatches(), 64);
  EXPECT_EQ(r.keep, cost::Keep::kInput);
  EXPECT_FALSE(r.stack.flash);
  EXPECT_NEAR(total_params(*r.shape) / 1e9, 174.6, 0.2);
}

// Settings that are not given are candidates: chunks of 126 + 2 layers on 16 ranks.
TEST(RunRequest, UnknownSettingsAreTried) {
  RunTable table;
  read_published(table);
  const auto request = request_of(run_of(table, "llama3-001"));
  ASSERT_TRUE(request.ok());
  EXPECT_GT(request->candidates.size(), 3u);
}

// Of settings not given, as many of those within a fifth of the fastest are faster than the chosen
// as are slower.
TEST(RunRequest, UnknownSettingsAreTheMiddleOfLikelyOnes) {
  RunTable table;
  read_published(table);
  auto request = request_of(run_of(table, "llama3-001"));
  ASSERT_TRUE(request.ok());
  RunRequest& run = *request;
  for (std::size_t i = 0; i < run.candidates.size(); ++i)  // one policy, so that each is a setting
    if (i % run.policies == 0) run.candidates[i / run.policies] = run.candidates[i];
  run.candidates.resize(run.candidates.size() / run.policies);
  run.policies = 1;
  for (cost::PriceRequest& one : run.candidates) one.keep = cost::Keep::kInput;
  const double chosen = price_run(run).price.time.total();
  std::vector<double> times;
  for (const cost::PriceRequest& one : run.candidates) {
    const cost::Price made = price(one);
    ASSERT_TRUE(made.fits);
    times.push_back(made.time.total());
  }
  const double best = *std::ranges::min_element(times);
  const auto faster = std::ranges::count_if(times, [&](double t) { return t < chosen; });
  const auto slower =
      std::ranges::count_if(times, [&](double t) { return t > chosen && t <= 1.2 * best; });
  EXPECT_GT(faster + slower, 2);
  EXPECT_LE(std::abs(faster - slower), 1);
}

TEST(RunRequest, DeepSeekHasItsLatentAttention) {
  RunTable table;
  read_published(table);
  const auto request = request_of(run_of(table, "simumax-007"));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->shape->kv_rank, 512);
  EXPECT_EQ(request->shape->dense_layers, 1);
}

}  // namespace
}  // namespace lockstep::backtest
