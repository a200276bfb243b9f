#include "lockstep/search/finalists.h"

#include <gtest/gtest.h>

#include "lockstep/plan/step.h"
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

// Memory for a few blocks less than all: the first stages make some again, the last none; every stage fits, the step is
// shorter than with as many everywhere, and the layout by its name is the same one.
TEST(Finalists, MakeAgainWhatEachStageNeeds) {
  Asked asked("llama3-70b", "h100:32", 8192, 64);
  Question& q = asked.question;
  q.pipes = {cost::Pipe::k1f1b}, q.tp = 4, q.pp = 8, q.cp = 1;
  asked.cluster.device.memory.value *= 0.72;
  const Walk walked = walk(Lattice(q), 1);
  ASSERT_EQ(walked.best.size(), 1U);
  const Priced& one = walked.best.front();
  ASSERT_GT(one.request.remade, 0);
  const Finalist found = simulate(one);
  const StageLayers dealt = plan::dealt_layers(80, 8);
  const Finalist even = simulate(one, evenly_remade(one.request, dealt));
  const StageLayers& remade = found.remade;
  ASSERT_EQ(remade.size(), 8U);
  EXPECT_GT(remade.front(), 0);
  EXPECT_EQ(remade.back(), 0);
  EXPECT_TRUE(found.priced.price.fits);
  EXPECT_LT(found.seconds, even.seconds * 0.99);
  const auto again = time_layout(q, *plan::parse_layout(to_text(layout_of(found))), 1);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->seconds, found.seconds) << to_text(layout_of(found));
  EXPECT_EQ(again->priced.price.memory.allocated(), found.priced.price.memory.allocated());
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
