// Derived passes compute derivatives: against finite differences, for every combination of the
// traits of a block, on one rank and on tensor ranks; and no policy changes a bit of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/parts/rig.h"

namespace lockstep::parts {
namespace {

// How fast the loss grows with the numbers that `at` names, all at once.
double difference(Rig& rig, const std::vector<double*>& at) {
  constexpr double kStep = 1e-5;
  const double before = *at[0];
  const auto loss_at = [&](double x) {
    for (double* one : at) *one = x;
    return rig.loss();
  };
  const double slope = (loss_at(before + kStep) - loss_at(before - kStep)) / (2 * kStep);
  loss_at(before);
  return slope;
}

void check_against_differences(Rig& rig) {
  const std::vector<Named> grads = rig.gradients(false, false);
  const bool sp = rig.passes.sizes().shares_rows;
  const auto same = [](double found, double want) {
    return std::abs(found - want) < 1e-7 * (1 + std::abs(want));
  };
  for (std::size_t r = 0; r < rig.params.size(); ++r)
    for (auto& [name, numbers] : rig.params[r]) {
      if (rig.first_alike(name, r) != r) continue;
      ASSERT_TRUE(grads[r].contains(name)) << name;
      for (std::size_t i = 0; i < numbers.size(); i += 1 + numbers.size() / 6) {
        std::vector<double*> at = {&numbers[i]};
        double found = grads[r].at(name)[i];
        for (std::size_t other = r + 1; other < rig.params.size(); ++other) {
          if (rig.first_alike(name, other) != r) continue;
          at.push_back(&rig.params[other][name][i]);
          // Ranks that have all rows find all of it, but of what every head uses.
          if (sp || name[1] == '_') found += grads[other].at(name)[i];
        }
        EXPECT_TRUE(same(found, difference(rig, at))) << name << " " << i << " " << found;
      }
    }
  for (std::size_t i = 0; i < rig.input.size(); i += 5) {
    const std::size_t mine = rig.input.size() / (sp ? rig.params.size() : 1);
    const double found = grads[i / mine].at("input")[i % mine];
    EXPECT_TRUE(same(found, difference(rig, {&rig.input[i]}))) << "input " << i;
  }
}

// All of those that blocks had first and of mixtures, and a sample of the others that meets every
// pair.
int next(int traits) {
  if (traits >= kSigmoid) return traits + 3;
  if (traits < 32 || traits >= kDense) return traits + 1;
  return std::min(traits + 13, kDense);
}

TEST(Derivatives, EqualFiniteDifferencesForAllTraits) {
  for (int traits = 0; traits < kTraits; traits = next(traits))
    for (const Ways& ways : ways_of(traits)) {
      SCOPED_TRACE("traits " + std::to_string(traits) + " tp " + ways.text());
      Rig rig(config_of(traits), sizes_of(traits, ways));
      check_against_differences(rig);
    }
}

// What is dropped, whether W follows at once, whether all is recomputed, and where a narrow type
// would place values: the same bits.
TEST(Derivatives, NoPolicyChangesABit) {
  int turn = 0;  // every policy meets every way to run it, of some traits
  for (int traits = 0; traits < kTraits; traits = next(traits), ++turn)
    for (const Ways& ways : ways_of(traits)) {
      const ModelConfig config = config_of(traits);
      const auto want = Rig(config, sizes_of(traits, ways)).gradients(false, false);
      for (const DType dtype : {DType::kF64, DType::kBF16})
        for (int set = 0; set < 8; ++set, ++turn) {
          const int mask = turn * 37 % 128;
          const Rig rig(config, sizes_of(traits, ways, dtype, mask));
          EXPECT_EQ(rig.gradients((turn & 1) != 0, (turn & 2) != 0), want)
              << "traits " << traits << " tp " << ways.text() << " mask " << mask;
        }
    }
}

}  // namespace
}  // namespace lockstep::parts
