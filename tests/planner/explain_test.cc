#include "lockstep/planner/explain.h"

#include <gtest/gtest.h>

#include "lockstep/planner/layout_of.h"
#include "lockstep/planner/seek.h"
#include "tests/planner/questions.h"

namespace lockstep::planner {
namespace {

// The problems of a trial in which `plan` printed faster neighbours than its best.
TEST(Explain, NoNeighbourIsFasterThanTheAnswer) {
  struct {
    const char *model, *cluster;
    std::int64_t seq, batch;
  } const problems[] = {{"llama3-70b", "h100:512", 8192, 512},
                        {"gpt3-175b", "a100:1024", 2048, 1536},
                        {"mixtral-8x7b", "h100:64", 4096, 512},
                        {"qwen2-72b", "h200:256", 4096, 1024},
                        {"llama3-70b", "h100:64", 8192, 512}};
  for (const auto& problem : problems) {
    const Asked asked(problem.model, problem.cluster, problem.seq, problem.batch);
    const std::vector<Finalist> found = seek(asked.question).best;
    ASSERT_FALSE(found.empty());
    const std::vector<Alternative> near = neighbours(asked.question, found.front());
    EXPECT_GT(near.size(), 8U);
    for (const Alternative& other : near) {
      if (!other.found) continue;
      EXPECT_GE(other.found->seconds * (1 + kTold), found.front().seconds) << other.change;
      // Percent and terms are of one model.
      EXPECT_NEAR(other.found->priced.price.time.total() / other.found->seconds, 1, 1e-12);
    }
  }
}

// Nothing is its own neighbour: here every block, some blocks or none are made again.
TEST(Explain, NeighboursAreOtherLayouts) {
  int counted = 0, whole = 0;
  for (double memory = 0.5; memory < 1; memory += 0.02) {
    Asked asked("llama3-70b", "h100:32", 8192, 64);
    asked.question.tp = 4, asked.question.pp = 8, asked.question.cp = 1;
    asked.question.headroom = 0;
    asked.cluster.device.memory.value *= memory;
    const Walk found = walk(Lattice(asked.question), 1);
    if (found.best.empty()) continue;
    const Finalist best = simulate(found.best.front());
    const spec::Layout chosen = layout_of(best);
    counted += chosen.recompute.blocks.empty() ? 0 : 1;
    whole += chosen.recompute == spec::Recompute{model::kWholeBlock} ? 1 : 0;
    bool has_full = false;
    for (const Alternative& other : neighbours(asked.question, best)) {
      has_full |= other.change == "recompute full";
      if (other.found) {
        EXPECT_NE(to_text(layout_of(*other.found)), to_text(chosen)) << other.change;
      }
    }
    EXPECT_EQ(has_full, chosen.recompute != spec::Recompute{model::kWholeBlock});
  }
  EXPECT_GT(counted, 0);
  EXPECT_GT(whole, 0);
}

// Llama 3's long sequences (arXiv 2407.21783, section 3.3.2): every other way for their ranks to
// meet is a neighbour.
TEST(Explain, OtherWaysOfContextParallelismAreNeighbours) {
  Asked asked("llama3-405b", "h100:16384", 131072, 128);
  asked.question.tp = 8, asked.question.cp = 16;
  const Walk found = walk(Lattice(asked.question), 1);
  ASSERT_FALSE(found.best.empty());
  std::string ways(to_text(found.best.front().request.context));
  for (const Alternative& other : neighbours(asked.question, simulate(found.best.front())))
    if (other.change.starts_with("cp_comm_type ")) ways += other.change.substr(12);
  for (const char* way : {"ring", "gather", "ulysses"})
    EXPECT_NE(ways.find(way), std::string::npos) << ways;
}

TEST(Explain, LittleMemoryIsSaid) {
  const Asked asked("llama3-405b", "h100:8", 8192, 64);
  cost::PriceRequest one = Lattice::blank(asked.question);
  one.tp = 8;
  const Alternative less =
      what_if(asked.question, {Resource::kMemory, 0.5}, simulate({one, cost::price(one)}));
  EXPECT_FALSE(less.found);
  EXPECT_GT(less.least_bytes, 40e9);
}

// Small models need neither tensor nor pipeline ranks; larger ones a node, then several.
TEST(Explain, RuleOfThumbFillsTheNodeFirst) {
  const auto degrees = [](const char* model, const char* cluster) {
    const Asked asked(model, cluster, 4096, 1024);
    const Alternative rule = rule_of_thumb(asked.question);
    EXPECT_TRUE(rule.found) << model;
    const cost::PriceRequest& r = rule.found->priced.request;
    return std::pair(r.tp, r.pp > 1);
  };
  EXPECT_EQ(degrees("gpt2", "h100:64"), std::pair(1, false));
  EXPECT_EQ(degrees("llama3-405b", "h100:1024"), std::pair(8, true));
}

TEST(Explain, DifferenceNamesTheLargestTermsFirst) {
  cost::StepTime from, to;
  from.forward = 10;
  to = from;
  EXPECT_EQ(difference(from, to), "");
  to.bubble = 2, to.tensor = 3, to.data = 0.01;
  EXPECT_EQ(difference(from, to), "tp +3 s, bubble +2 s");
  EXPECT_EQ(difference(to, from), "tp -3 s, bubble -2 s");
}

// A rate without a band flips nothing; one that may be anything flips something, and what it names
// wins then.
TEST(Explain, FlipsFollowTheBands) {
  const Asked asked("llama3-70b", "h100:512", 8192, 512);
  cluster::DeviceRates rates = *asked.question.rates;
  for (cluster::Rate& rate : rates.terms) rate.band = 0;
  Question question = asked.question;
  question.rates = &rates;
  const std::vector<Finalist> finalists = simulate(walk(Lattice(question), 8).best);
  EXPECT_TRUE(flips(finalists).empty());
  for (const cluster::Term term : {cluster::Term::kNetwork, cluster::Term::kScaleUp})
    rates.at(term).band = 0.99;
  for (const Flip& flip : flips(finalists)) {
    EXPECT_TRUE(flip.term == cluster::Term::kNetwork || flip.term == cluster::Term::kScaleUp);
    cluster::DeviceRates moved = rates;
    moved.at(flip.term).value *= 1 + flip.change;
    cost::PriceRequest first = finalists[0].priced.request,
                       other = finalists[flip.winner].priced.request;
    first.rates = other.rates = &moved;
    EXPECT_LT(simulate(Priced{other, cost::price(other)}).seconds,
              simulate(Priced{first, cost::price(first)}).seconds);
  }
  EXPECT_FALSE(flips(finalists).empty());
}

TEST(Explain, ALayoutThatDoesNotFitIsToldWhatWould) {
  const Asked asked("llama3-70b", "h100:64", 8192, 512);
  const auto named = [](const char* words) { return *spec::parse_layout(words); };
  const auto timed = time_layout(asked.question, named("tp8 pp2 dp4 zero1 1f1b"), 2);
  ASSERT_TRUE(timed.ok());
  ASSERT_FALSE(timed->priced.price.fits);
  const auto fitting = fitting_recompute(*timed);
  ASSERT_TRUE(fitting);
  spec::Layout other = named("tp8 pp2 dp4 zero1 1f1b");
  other.recompute = *fitting;
  EXPECT_TRUE(time_layout(asked.question, other, 2)->priced.price.fits) << to_text(*fitting);
  const auto none = time_layout(asked.question, named("dp64 zero0"), 1);
  EXPECT_FALSE(fitting_recompute(*none));
}

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
