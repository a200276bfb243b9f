// Collectives inside passes are no ops of a program, so programs cannot be mutated to lack them:
// here every call on a tensor, context or expert group goes wrong in every way, one at a time, and
// must be noticed.
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/verify/verify.h"
#include "tests/train/faulty_group.h"
#include "tests/train/small.h"

namespace lockstep::train {
namespace {

constexpr Seconds kPassDeadline = {60.0};
constexpr int kPassSteps = 2;
constexpr int kPassOrders =
    2 * kPassSteps - 1;  // a free run, and every later step from the reference

constexpr const char* kPassLayouts[] = {
    "tp2 dp1 zero0 m1 step",
    "tp2 dp1 zero0 m1 step recompute=full",
    "tp2 dp1 zero0 m1 step nosp",
    "tp2 pp2 dp1 zero0 zb-h1 m2 step",
    "cp2 dp1 zero0 m1 step",
    "cp2 dp1 zero0 m1 step cp_comm_type=gather recompute=full",
    "cp2 dp1 zero0 m1 step cp_comm_type=ulysses",
};
constexpr const char* kMixtureLayouts[] = {
    "dp2 ep2 zero0 m1 step",     "dp2 ep2 zero0 m1 step recompute=full",
    "cp2 dp1 ep2 zero0 m1 step", "tp2 dp2 ep2 etp2 zero0 m1 step",
    "tp2 dp1 ep2 zero0 m1 step", "tp4 dp1 ep2 etp2 zero0 m1 step",
};

// The calls that a rank makes in a step, the same in every step.
std::vector<GroupCall> calls_of(const verify::Verifier& verifier, const spec::Layout& layout,
                                const program::Program& program, int rank) {
  std::vector<GroupCall> calls;
  verify::Fault fault{program};
  fault.wrap_world = [&](comm::World& inner) {
    GroupPlan plan;
    if (inner.rank().value == rank) plan.calls = &calls;
    return std::make_unique<FaultyWorld>(inner, plan);
  };
  const verify::Verdict sound = verifier.check_fault(layout, fault, kPassDeadline);
  // The world counts the other groups apart, so predictions of traffic are not asked.
  EXPECT_TRUE(sound.failure_kind == verify::FailureKind::kNothing ||
              sound.failure_kind == verify::FailureKind::kPrediction)
      << sound.failure;
  EXPECT_EQ(calls.size() % kPassOrders, 0u);
  calls.resize(calls.size() / kPassOrders);
  return calls;
}

using Findings = std::map<GroupFault, std::map<verify::FailureKind, int>>;

// Ranks of one stage call alike; the first rank of each stands for its group.
void plant_everywhere(verify::Verifier& verifier, const char* tried, Findings& counts) {
  const auto layout = spec::parse_layout(tried);
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  const auto sound = verifier.check(*layout);
  ASSERT_TRUE(sound.ok() && sound->ok()) << (sound.ok() ? sound->failure : sound.error().message);
  const Job job = *verifier.job(*layout);
  const program::Program& program = job.program;
  for (int stage = 0; stage < static_cast<int>(layout->degrees.pp); ++stage) {
    int rank = 0;
    while (job.place({rank}).coord.value != stage) ++rank;
    const std::vector<GroupCall> calls = calls_of(verifier, *layout, program, rank);
    ASSERT_GE(calls.size(), 6u);
    for (std::size_t at = 0; at < calls.size(); ++at)
      for (const GroupFault fault :
           {GroupFault::kDrop, GroupFault::kRotate, GroupFault::kDouble, GroupFault::kMean}) {
        const bool scales = fault == GroupFault::kDouble || fault == GroupFault::kMean;
        if (scales && !calls[at].is_sum) continue;  // gathering again writes the same
        GroupPlan plan{
            .per_step = static_cast<int>(calls.size()), .at = static_cast<int>(at), .fault = fault};
        verify::Fault planted{program};
        planted.wrap_world = [&](comm::World& inner) {
          const bool is_here = job.place(inner.rank()).coord.value == stage;
          return std::make_unique<FaultyWorld>(inner, is_here ? plan : GroupPlan{});
        };
        const verify::Verdict verdict = verifier.check_fault(*layout, planted, kPassDeadline);
        EXPECT_TRUE(verdict.failure_kind == verify::FailureKind::kNumbers ||
                    verdict.failure_kind == verify::FailureKind::kReplicas)
            << tried << ", stage " << stage << ", call " << at << " of " << calls.size()
            << (calls[at].is_sum ? ", sum" : ", gathering") << " of " << calls[at].bytes
            << " bytes: " << name_of(fault) << " is noticed by " << to_text(verdict.failure_kind)
            << " " << verdict.failure;
        ++counts[fault][verdict.failure_kind];
      }
  }
}

// Prints how each kind of fault was noticed; returns how many there were.
int total(const Findings& counts) {
  int all = 0;
  for (const auto& [fault, row] : counts)
    for (const auto& [failure_kind, count] : row) {
      std::cout << name_of(fault) << ", " << to_text(failure_kind) << ": " << count << "\n";
      all += count;
    }
  std::cout << all << " collectives inside passes gone wrong\n";
  return all;
}

TEST(PassMutantRuns, AreAllNoticed) {
  auto verifier = verify::Verifier::create(small_spec(true), kPassSteps);
  ASSERT_TRUE(verifier.ok()) << verifier.error().message;
  Findings counts;
  for (const char* layout : kPassLayouts) plant_everywhere(*verifier, layout, counts);
  EXPECT_GE(total(counts), 300);
}

TEST(PassMutantRuns, OfMixturesAreAllNoticed) {
  auto verifier = verify::Verifier::create(small_mixture(), kPassSteps);
  ASSERT_TRUE(verifier.ok()) << verifier.error().message;
  Findings counts;
  for (const char* layout : kMixtureLayouts) plant_everywhere(*verifier, layout, counts);
  EXPECT_GE(total(counts), 100);
}

}  // namespace
}  // namespace lockstep::train
