// Memory of ranks that share experts depends on what their routers choose: it is predicted exactly
// for rows that were met (verify_test), and bounded before.
#include "lockstep/train/predictions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "lockstep/data/mock_tokens.h"
#include "lockstep/verify/trial.h"
#include "tests/train/small.h"

namespace lockstep::train {
namespace {

std::vector<verify::RankRecord> records_of(const Job& job) {
  const data::MockTokens tokens(1, job.model.config.vocab, true);
  const std::vector<verify::StepOrder> orders = {{0, nullptr}};
  return verify::run_trial(job, tokens, orders, Seconds{60}).ranks;
}

TEST(Predictions, OfRowsMetUnevenlyBoundWhatEveryRankTakes) {
  const Job job = job_of(small_mixture(), "dp4 ep4 zero1 m2 step");
  const auto sent = static_cast<double>(job.spec.batch.microbatch * job.spec.batch.seq *
                                        job.model.config.moe.top_k);
  double greatest = 0;
  for (const verify::RankRecord& record : records_of(job)) {
    const StepReport& report = record.steps[0].report;
    ASSERT_FALSE(report.rows_met.empty());
    double least = 4, most = 0;
    for (const auto& [at, rows] : report.rows_met) {
      least = std::min(least, static_cast<double>(rows.all) / sent);
      most = std::max(most, static_cast<double>(rows.all) / sent);
    }
    EXPECT_GE(report.peak_bytes, peak_if_met(job, record.rank, least));
    EXPECT_LE(report.peak_bytes, peak_if_met(job, record.rank, most));
    EXPECT_LE(report.peak_bytes, peak_if_met(job, record.rank, 4));
    greatest = std::max(greatest, most);
  }
  EXPECT_GT(greatest, 1.2) << "the rows say nothing if all meet as many";
  EXPECT_EQ(peak_if_met(job, Rank{0}, 1), predict(job, Rank{0}).peak_bytes);
  EXPECT_LT(peak_if_met(job, Rank{0}, 1), peak_if_met(job, Rank{0}, 2));
  EXPECT_LT(peak_if_met(job, Rank{0}, 2), peak_if_met(job, Rank{0}, 4));
}

// Where every token meets all experts there is one way to route.
TEST(Predictions, OfAllRowsAreExact) {
  spec::Spec spec = small_mixture();
  spec.model.moe.top_k = spec.model.moe.experts;
  const Job job = job_of(spec, "dp4 ep4 zero1 m2 step");
  for (const verify::RankRecord& record : records_of(job))
    for (const double times : {1, 2, 4})
      EXPECT_EQ(record.steps[0].report.peak_bytes, peak_if_met(job, record.rank, times));
}

}  // namespace
}  // namespace lockstep::train
