#include "lockstep/search/finalists.h"

#include <gtest/gtest.h>

#include "lockstep/search/layout_of.h"
#include "tests/search/questions.h"

namespace lockstep::search {
namespace {

Priced priced(const Asked& asked, const char* layout, std::int64_t microbatch) {
  const auto request = request_of(asked.question, *plan::parse_layout(layout), microbatch);
  EXPECT_TRUE(request.ok());
  return {*request, cost::price(*request)};
}

// Without a pipeline nothing is left to simulate.
TEST(Finalists, WithoutAPipelineAreAsPriced) {
  const Asked asked("llama3-8b", "h100:64", 8192, 512);
  const Priced one = priced(asked, "dp64 zero1", 1);
  const Finalist found = simulate(one);
  EXPECT_FALSE(found.simulated);
  EXPECT_EQ(found.seconds, one.seconds());
}

// A bubble by its formula and by the schedule itself are the same where stages are nearly even; a shortened
// simulation is the long one.
TEST(Finalists, AgreeWithTheClosedForm) {
  for (const std::int64_t batch : {1024, 65536}) {
    const Asked asked("llama3-70b", "h100:512", 8192, batch);
    for (const char* name : {"tp8 pp4 dp16 zero1 1f1b", "tp8 pp4 dp16 zero1 interleaved chunks5"}) {
      const Priced one = priced(asked, name, 1);
      const Finalist found = simulate(one);
      ASSERT_TRUE(found.simulated) << name;
      EXPECT_NEAR(found.seconds / one.seconds(), 1, 0.06) << name << " " << batch;
    }
  }
}

TEST(Finalists, ComeFastestFirst) {
  const Asked asked("llama3-405b", "h100:16384", 8192, 2048);
  const std::vector<Finalist> found = simulate(walk(Lattice(asked.question), 64).best);
  ASSERT_FALSE(found.empty());
  for (std::size_t i = 1; i < found.size(); ++i)
    EXPECT_LE(found[i - 1].seconds, found[i].seconds * 1.0021);
}

}  // namespace
}  // namespace lockstep::search
