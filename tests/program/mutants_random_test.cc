#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <map>
#include <set>

#include "lockstep/program/deadlock.h"
#include "lockstep/program/text.h"
#include "lockstep/program/validate.h"
#include "tests/program/interpreter.h"
#include "tests/program/lowered.h"
#include "tests/program/program_text.h"
#include "tests/program/spoil.h"

namespace lockstep::program {
namespace {

TEST(RandomMutants, WhatLoweringEmitsComputesTheStep) {
  int programs = 0;
  for (const Sample& sample : lowered_samples()) {
    const Outcome outcome = interpret(sample.program);
    EXPECT_EQ(outcome.fault, "") << sample.name;
    EXPECT_TRUE(outcome == reference(sample.program.step)) << sample.name;
    ++programs;
  }
  std::cout << programs << " programs\n";
}

struct SpoilTally {
  int made = 0, rejected = 0, harmless = 0;
};

TEST(RandomMutants, AreRejectedOrComputeTheSame) {
  constexpr int kMutants = 20'000;
  Dice dice(11);
  const std::vector<Sample> samples = lowered_samples();
  std::map<Spoil, SpoilTally> tallies;
  std::set<Hash128> known;
  for (int turn = 0; static_cast<int>(known.size()) < kMutants; ++turn) {
    const Sample& sample = samples[static_cast<std::size_t>(turn) % samples.size()];
    const auto kind = static_cast<Spoil>(dice.between(0, kNumSpoils - 1));
    const Program mutant = Spoiler(sample.program, dice).spoil(kind);
    if (!known.insert(program_hash(mutant)).second) continue;
    SpoilTally& tally = tallies[kind];
    ++tally.made;
    if (!validate(mutant, 1).empty() || !check_deadlock(mutant, Transport::kTagged).ok()) {
      ++tally.rejected;
      continue;
    }
    const Outcome outcome = interpret(mutant);
    ASSERT_EQ(outcome.fault, "") << sample.name << "\n"
                                 << to_text(sample.program) << to_text(mutant);
    ASSERT_TRUE(outcome == reference(mutant.step)) << sample.name << "\n"
                                                   << to_text(sample.program) << to_text(mutant);
    ++tally.harmless;
  }
  for (const auto& [kind, tally] : tallies)
    std::cout << kSpoilNames[static_cast<int>(kind)] << ": of " << tally.made << " "
              << tally.rejected << " rejected, " << tally.harmless << " compute the same\n";
}

}  // namespace
}  // namespace lockstep::program
