#include "lockstep/planner/placement_rules.h"

#include <gtest/gtest.h>

#include "tests/planner/questions.h"

namespace lockstep::planner {
namespace {

TEST(ShardingRule, TakesTheSmallestTensorDegreeThatFits) {
  for (const char* model : {"llama3-8b", "llama3-70b"}) {
    const Asked asked(model, "h100:64", 8192, 512);
    const Alternative rule = sharding_rule(asked.question);
    ASSERT_TRUE(rule.found) << model;
    const cost::PriceRequest& r = rule.found->priced.request;
    EXPECT_EQ(r.pp, 1);
    EXPECT_EQ(r.cp, 1);
    Question smaller = asked.question;
    smaller.cp = smaller.pp = 1;
    for (smaller.tp = 1; smaller.tp < r.tp; smaller.tp *= 2)
      EXPECT_TRUE(walk(Lattice(smaller), 1).best.empty()) << model << " tp " << smaller.tp;
  }
}

TEST(ShardingRule, SaysWhatIsMissingWhenNothingFits) {
  const Asked asked("llama3-405b", "h100:8", 8192, 64);
  const Alternative rule = sharding_rule(asked.question);
  EXPECT_FALSE(rule.found);
  EXPECT_GT(rule.least_bytes, cost::capacity_bytes(asked.cluster.device));
}

}  // namespace
}  // namespace lockstep::planner
