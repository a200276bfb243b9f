#include "lockstep/observe/memory_risk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "lockstep/base/random.h"
#include "tests/support/golden.h"

namespace lockstep::observe {
namespace {

// A page that was written anew moves the numbers in memory_risk.cc.
TEST(MemoryRisk, IsThatOfThePublishedVerdicts) {
  std::ifstream file(support::source_dir() + "/docs/accuracy.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const auto after = [&](const std::string& words) {
    const std::size_t at = page.find(words);
    EXPECT_NE(at, std::string::npos) << words;
    return std::strtod(page.c_str() + at + words.size(), nullptr);
  };
  EXPECT_EQ(published_need().mean, after("x is normal with mean "));
  EXPECT_EQ(published_need().deviation, after(" and deviation "));
}

// Needs drawn one by one.
TEST(MemoryRisk, IsTheShareOfRunsThatNeedMore) {
  const RandomStream stream(11, "needs");
  constexpr int kRuns = 20000;
  for (const Belief& need : {published_need(), Belief{-0.2, 0.05}, Belief{0.3, 0.2}})
    for (const double predicted : {50.0, 66.0, 78.0, 90.0}) {
      int ran_out = 0;
      for (std::uint64_t i = 0; i < kRuns; ++i)
        ran_out += predicted * std::exp(need.mean + need.deviation * stream.normal(i)) > 80;
      EXPECT_NEAR(out_of_memory(need, predicted, 80), ran_out / static_cast<double>(kRuns), 0.012);
    }
}

TEST(MemoryRisk, HeadroomIsOfTheRisk) {
  for (const Belief& need : {published_need(), Belief{-0.2, 0.05}, Belief{0.3, 0.2}}) {
    double before = 1;
    for (const double risk : {0.0001, 0.05, 0.3, 0.5, 0.9999}) {
      const double headroom = headroom_at(need, risk);
      EXPECT_NEAR(out_of_memory(need, 80 * (1 - headroom), 80), risk, 1e-9);
      EXPECT_LT(headroom, before);  // who dares more leaves less free
      before = headroom;
    }
  }
}

}  // namespace
}  // namespace lockstep::observe
