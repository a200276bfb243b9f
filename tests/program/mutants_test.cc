#include "tests/support/mutants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "lockstep/program/deadlock.h"
#include "lockstep/program/op_table.h"
#include "lockstep/program/validate.h"
#include "tests/program/formulas.h"
#include "tests/program/interpreter.h"
#include "tests/program/listing.h"
#include "tests/program/lowered.h"
#include "tests/program/relist.h"
#include "tests/support/golden.h"

namespace lockstep::program {
namespace {

bool is_caught(const Program& program) {
  return !validate(program, 1).empty() || !check_deadlock(program, Transport::kTagged).ok();
}

TEST(Mutants, EverythingLoweringEmitsIsValidAndEnds) {
  for (const Sample& sample : lowered_samples()) {
    SCOPED_TRACE(sample.name);
    std::string problems;
    for (const Problem& problem : validate(sample.program)) problems += to_text(problem) + "\n";
    EXPECT_EQ(problems, "") << to_text(sample.program);
    // Lowering keeps outputs and gradients in order, each for itself; with more chunks both may go
    // from one coordinate to the same other one.
    const bool is_one_chunk = sample.program.step.shape.chunks == 1;
    const Result<void> result = check_deadlock(
        sample.program, is_one_chunk ? Transport::kFifoPerDirection : Transport::kTagged);
    EXPECT_TRUE(result.ok()) << result.error().message;
    const Result<Program> back = parse_program(to_text(sample.program));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(*back, sample.program);
  }
}

std::string tokens(const Program& program) {
  std::string text;
  for (const Op& op : program.list({0}))
    text += (text.empty() ? "" : " ") + op_token(program.step, op);
  return text;
}

// Why an op may change places with a neighbour and still pass: what changes is when, not what. All
// other faults are caught. tests/train/mutants_test.cc runs these all the same.
const std::map<OpKind, std::string> kHarmlessOrders = {
    {OpKind::kForward, "beside compute of another unit or microbatch; the loss is an exact sum"},
    {OpKind::kBackward, "beside a free or compute of another unit"},
    {OpKind::kInputGrad, "beside a free or compute of another unit or microbatch"},
    {OpKind::kWeightGrad, "beside compute of another unit; those of one unit stay in order"},
    {OpKind::kSend, "of different tensors, each behind what made it"},
    {OpKind::kPostRecv, "of different tensors, each before what needs it"},
    {OpKind::kLoad, "each load is still before its first reader"},
    {OpKind::kCount, "still before the first gradient of the head, which alone reads it"},
    {OpKind::kRecompute, "beside the compute of another unit, still between its F and its I"},
    {OpKind::kGather, "of different units, each before its wait and behind the free before it"},
    {OpKind::kFree,
     "of different units, or past compute of another unit, or left out with the "
     "gather after it: memory, not values"},
    {OpKind::kReduce, "of different units, each behind its last W"},
    {OpKind::kReduceReplicated, "of different units, each behind its last reduction"},
    {OpKind::kUpdate, "of different units, which share only the norm that both read"},
    {OpKind::kAllGatherUpdated, "of different units, each before its wait"},
    {OpKind::kWait, "nothing between the two places needs what either completes"},
};

struct KindTally {
  int made = 0, caught = 0;
};

TEST(Mutants, AreCaughtOrComputeTheSame) {
  std::map<MutantKind, KindTally> by_kind;
  std::map<OpKind, int> passed;
  for (const Sample& sample : lowered_samples()) {
    const std::string schedule = sample.name.substr(0, sample.name.find(' '));
    if (!std::set<std::string>{"1f1b", "zb-h1", "zbv", "evaluation"}.contains(schedule)) continue;
    SCOPED_TRACE(sample.name);
    const Program& program = sample.program;
    for (const Mutant& mutant : mutants(program)) {
      const bool caught = is_caught(mutant.program);
      const OpKind op = program.list(mutant.coord)[static_cast<std::size_t>(mutant.op)].kind;
      ++by_kind[mutant.kind].made;
      by_kind[mutant.kind].caught += caught;
      if (caught) continue;
      ++passed[op];
      const bool is_evaluated = program.step.forward_only && op == OpKind::kForward;
      EXPECT_TRUE(mutant.kind == MutantKind::kOrder || mutant.kind == MutantKind::kKeep ||
                  is_evaluated)
          << mutant.what;
      EXPECT_TRUE(kHarmlessOrders.contains(op)) << mutant.what;
      ASSERT_EQ(Formulas(mutant.program, mutant.coord).results(),
                Formulas(program, mutant.coord).results())
          << mutant.what << "\n"
          << to_text(program) << to_text(mutant.program);
    }
  }
  for (const auto& [kind, tally] : by_kind)
    std::cout << to_text(kind) << ": " << tally.caught << " of " << tally.made << " caught\n";
  for (const auto& [op, count] : passed)
    std::cout << "  order of " << op_row(op).token << ": " << count << " pass, "
              << kHarmlessOrders.at(op) << "\n";
  EXPECT_EQ(by_kind.size(), static_cast<std::size_t>(kNumMutantKinds));
}

// Gradients of norms that are not summed under sequence parallelism, of the final norm in
// Megatron-LM issue 1446: the op is dropped, with its Wait. Of every program, with the words.
TEST(Mutants, NormGradientsThatAreNotReducedAreNamed) {
  int dropped = 0;
  for (const Sample& sample : lowered_samples())
    for (std::size_t c = 0; c < sample.program.lists.size(); ++c)
      for (const NamedOp& item : named(sample.program.lists[c])) {
        if (item.op.kind != OpKind::kReduceReplicated) continue;
        std::vector<NamedOp> items = named(sample.program.lists[c]);
        std::erase_if(items, [&](const NamedOp& other) { return other.id == item.id; });
        Program mutant = sample.program;
        mutant.lists[c] = relisted(items);
        const std::vector<Problem> problems = validate(mutant);
        ASSERT_FALSE(problems.empty()) << sample.name;
        EXPECT_EQ(problems.front().what, "reduce replicated parameters of unit " +
                                             std::to_string(item.op.unit) + " is missing");
        EXPECT_FALSE(interpret(mutant) == reference(mutant.step)) << sample.name;
        ++dropped;
      }
  EXPECT_GT(dropped, 100);
}

TEST(Mutants, AreAllDifferentAndAlwaysTheSame) {
  std::string text;
  for (const Program& program : {tiny(1), naive_1f1b(), zero3()}) {
    const std::vector<Mutant> once = mutants(program), again = mutants(program);
    ASSERT_EQ(once.size(), again.size());
    std::set<std::string> texts = {to_text(program)};
    for (std::size_t i = 0; i < once.size(); ++i) {
      EXPECT_EQ(once[i].what, again[i].what);
      EXPECT_EQ(once[i].program, again[i].program);
      EXPECT_TRUE(texts.insert(to_text(once[i].program)).second) << once[i].what;
      if (program == tiny(1)) text += once[i].what + "\n  " + tokens(once[i].program) + "\n";
    }
    int total = 0;
    for (const int count : count_by_kind(once)) total += count;
    EXPECT_EQ(total, static_cast<int>(once.size()));
  }
  EXPECT_TRUE(support::matches_golden("schedule/mutants.txt", text));
}

}  // namespace
}  // namespace lockstep::program
