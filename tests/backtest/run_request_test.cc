#include "lockstep/backtest/run_request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

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
  EXPECT_EQ(r.drop, model::kWholeBlock);
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
  for (cost::PriceRequest& one : run.candidates) one.drop = model::kWholeBlock;
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

using Cells = std::vector<std::pair<std::string_view, std::string>>;

PublishedRun changed(const RunTable& table, std::string_view id, const Cells& cells) {
  std::vector<std::string> texts;
  for (const std::string& column : table.columns) {
    const auto other = std::ranges::find(cells, column, &Cells::value_type::first);
    texts.push_back(other == cells.end() ? run_of(table, id).text(column) : other->second);
  }
  return {&table.columns, std::move(texts)};
}

// GPT-3 on 64 devices, tp 8, pp 8, vpp 3, and DeepSeek-V2 of four layers with experts.
TEST(RunRequest, RefusesByNameWhatNoRunHas) {
  RunTable table;
  read_published(table);
  const char *gpt = "mlm-korth-003", *experts = "simumax-007";
  const std::string whole = ", no whole number from 1 to 2147483647";
  const struct {
    const char* id;
    Cells cells;
    std::string message;
  } cases[] = {
      {gpt, {{"tp", "2.5"}}, "tp is `2.5`" + whole},
      {gpt, {{"pp", "0.5"}}, "pp is `0.5`" + whole},
      {gpt, {{"cp", "1.5"}}, "cp is `1.5`" + whole},
      {gpt, {{"cp", "two"}}, "cp is `two`" + whole},
      {gpt, {{"dp", "0.5"}}, "dp is `0.5`" + whole},
      {gpt, {{"ep", "0"}}, "ep is `0`" + whole},
      {gpt, {{"vpp", "1.5"}}, "vpp is `1.5`" + whole},
      {gpt, {{"layers", "95.5"}}, "layers is `95.5`" + whole},
      {gpt, {{"seq_len", "2048.5"}}, "seq_len is `2048.5`" + whole},
      {gpt, {{"gpus", "3e9"}}, "gpus is `3e9`" + whole},
      {gpt, {{"dp", ""}, {"gpus", "96"}}, "tp x pp x cp x dp is 64, but gpus is 96"},
      {gpt, {{"tp", "2147483647"}}, "tp x pp x cp x dp is 1.71799e+10, but gpus is 64"},
      {gpt, {{"layers", "6"}}, "pp is 8, but layers is 6"},
      {gpt,
       {{"vpp", "13"}},
       "vpp is 13, but layers = 96 and two ends fill pp x vpp = 8 x 12 at most"},
      {gpt, {{"zero_stage", "9"}}, "zero_stage is `9`, no whole number from 0 to 3"},
      {gpt, {{"zero_stage", "0.5"}}, "zero_stage is `0.5`, no whole number from 0 to 3"},
      {gpt, {{"ep", "4"}}, "ep is 4, which does not divide moe_experts = 1 and tp x cp x dp = 8"},
      {experts,
       {{"moe_experts", "12"}},
       "ep is 8, which does not divide moe_experts = 12 and tp x cp x dp = 8"},
      {gpt, {{"micro_batch", "0"}}, "micro_batch is `0`"},
      {gpt,
       {{"micro_batch", "0.5"}},
       "micro_batch is `0.5`, no whole number of sequences over cp = 1"},
      {gpt, {{"micro_batch", "65"}}, "micro_batch is 65, more than global_batch / dp"},
      {gpt, {{"micro_batch", "3"}}, "micro_batch is `3`, which does not divide global_batch / dp"},
      {gpt,
       {{"pp", "4"}, {"dp", "2"}, {"global_batch", "65"}},
       "global_batch is 65, which dp = 2 does not divide"},
  };
  for (const auto& [id, cells, message] : cases) {
    const auto request = request_of(changed(table, id, cells));
    ASSERT_FALSE(request.ok()) << message;
    EXPECT_EQ(request.error().code, Code::kRowNotPriced);
    EXPECT_EQ(request.error().message, message);
    EXPECT_EQ(request.error().help, std::string("row ") + id);
  }
}

// Sources that count sequences of a device print parts of one where cp devices share it.
TEST(RunRequest, PartsOfASequenceAreOfRanksThatShareIt) {
  RunTable table;
  read_published(table);
  const auto request = request_of(
      changed(table, "mlm-korth-003", {{"tp", "2"}, {"cp", "4"}, {"micro_batch", "0.25"}}));
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->candidates.front().microbatch, 1);
  EXPECT_EQ(request->candidates.front().microbatches(), 64);
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
