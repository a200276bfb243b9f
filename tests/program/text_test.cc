#include "lockstep/program/text.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <set>

#include "lockstep/program/op_table.h"
#include "tests/program/listing.h"
#include "tests/support/golden.h"

namespace lockstep::program {
namespace {

void expect_round_trip(const Program& program) {
  const std::string text = to_text(program);
  const Result<Program> back = parse_program(text);
  ASSERT_TRUE(back.ok()) << back.error().message << "\n" << text;
  ASSERT_EQ(*back, program) << text;
  ASSERT_EQ(to_text(*back), text);
  ASSERT_EQ(program_hash(*back), program_hash(program));
}

// A sound shape with lists that make no sense: any kind, any group, any number.
Program random_program(Dice& dice) {
  Program program;
  StepShape& step = program.step;
  step.shape = {dice.between(1, 3), dice.between(1, 2), dice.between(1, 3)};
  step.placement = dice.coin() ? pipeline::Placement::kLoop : pipeline::Placement::kV;
  step.stage_begin = {0};
  for (int stage = 0; stage < step.shape.stages(); ++stage)
    step.stage_begin.push_back(step.stage_begin.back() + dice.between(2, 3));
  step.zero = dice.between(0, 3);
  step.period = dice.coin() ? Period::kStep : Period::kMicrobatch;
  step.replicas = dice.coin();
  step.tied = dice.coin();
  if (dice.coin()) {
    step.recompute.assign(static_cast<std::size_t>(step.units()), false);
    step.recompute[1] = step.units() > 2;
  }
  step.resident_units = dice.between(1, 5);
  step.prefetch = dice.between(0, 5);
  step.forward_only = dice.coin();
  step.noise = !step.tied && dice.coin();
  if (dice.coin())
    for (int unit = 0; unit < step.units(); ++unit)
      step.experts.push_back(unit > 0 && unit < step.head() && dice.coin());
  step.tensor_parallel = dice.coin();
  if (step.tensor_parallel && dice.coin())
    for (int unit = 0; unit < step.units(); ++unit) step.partial.push_back(dice.coin());
  program.transfers = usual_transfers(step);
  if (dice.coin() && !program.transfers.empty()) program.transfers.back().unit += 7;
  program.lists.resize(static_cast<std::size_t>(step.shape.coords));
  for (auto& list : program.lists)
    for (int i = dice.between(0, 20); i > 0; --i) {
      const OpRow& row = op_row(static_cast<OpKind>(dice.between(0, kNumOpKinds - 1)));
      Op& op = list.emplace_back();
      op.kind = row.kind;
      for (int field = 0; field < kNumOpFields; ++field)
        if (row.uses[field] || dice.between(0, 9) == 0)
          op.*kOpFields[field].member = dice.between(-2, 100'000);
      op.group = dice.coin() ? usual_group(step, op)
                             : static_cast<CommGroup>(dice.between(0, kNumCommGroups - 1));
    }
  return program;
}

TEST(ProgramText, ReadsBackExactly) {
  expect_round_trip(naive_1f1b());
  expect_round_trip(zero3());
  Dice dice(1);
  for (int round = 0; round < 300; ++round) expect_round_trip(random_program(dice));
}

TEST(ProgramText, HasOneStableFormAndHash) {
  std::string text;
  for (const Program& program : {naive_1f1b(), zero3()})
    text += to_text(program) + "hash " + to_hex(program_hash(program)) + "\n\n";
  EXPECT_TRUE(support::matches_golden("schedule/program.txt", text));
}

TEST(ProgramText, WordsForPeople) {
  const Program program = naive_1f1b();
  const auto words = [&](int coord, std::size_t op) {
    return op_text(program, {coord}, program.lists[static_cast<std::size_t>(coord)][op]);
  };
  EXPECT_EQ(words(0, 0), "load of microbatch 0");
  EXPECT_EQ(words(0, 2), "F of unit 1, microbatch 0");
  EXPECT_EQ(words(0, 3), "send of output of unit 1, microbatch 0, to pipeline rank 1");
  EXPECT_EQ(words(0, 9),
            "wait for receive of gradient of unit 1, microbatch 0, from pipeline rank 1");
  EXPECT_EQ(words(1, 1), "count of valid tokens");
  EXPECT_EQ(words(1, 19), "reduce of unit 3, period 0");
  EXPECT_EQ(words(1, 20), "wait for reduce of unit 3, period 0");
  EXPECT_EQ(words(1, 23), "norm");
  EXPECT_EQ(words(1, 24), "update of unit 2");
  EXPECT_EQ(op_text(program, {0}, {.kind = OpKind::kReduceReplicated, .unit = 1}),
            "reduce replicated parameters of unit 1");
  EXPECT_EQ(op_text(program, {0}, {.kind = OpKind::kWait, .target = 99}), "wait for op 99");
  Program mixture = program;
  mixture.step.experts = {false, true, false, false};
  const Op reduce = {.kind = OpKind::kReduce,
                     .group = CommGroup::kExpertData,
                     .unit = mixture.step.experts_of(1),
                     .period = 0};
  EXPECT_EQ(op_text(mixture, {0}, reduce), "reduce of experts of unit 1, period 0");
  EXPECT_EQ(op_token(mixture.step, reduce), "reduce1e.0");
  EXPECT_EQ(op_text(program, {0}, {.kind = OpKind::kSend, .transfer = 99}), "send of transfer 99");
}

TEST(ProgramText, ErrorsNameLineAndToken) {
  const std::string good = to_text(naive_1f1b());
  struct Case {
    const char *from, *to, *message;
  };
  const std::vector<Case> cases = {
      {"lockstep program 1", "lockstep program 2", "line 1, 'lockstep program 2'"},
      {"coords 2", "coords x", "line 2, 'x': expected a whole number"},
      {"coords 2", "coords 02", "line 2, '02': expected a whole number"},
      {"coords 2", "cords 2", "line 2, 'cords': expected 'coords'"},
      {"coords 2", "coords 3", "the header is unsound: stage_begin has 3 entries"},
      {"placement loop", "placement ring", "line 5, 'ring': expected loop or v"},
      {"stages 0 2 4", "stages 0 2 4.5", "line 6, '4.5': expected a whole number"},
      {"zero 0", "zero 7", "zero = 7"},
      {"tied no", "tied maybe", "line 10, 'maybe': expected no or yes"},
      {"recompute none", "recompute 0 2 0 0", "line 11, '2': expected 0 or 1"},
      {"transfers usual", "transfers 1", "line 16, '0:': expected act or grad"},
      {"transfers usual", "transfers -1", "line 15, '-1': expected 'usual' or the number"},
      {"F1.0", "F1", "line 16, 'F1': wrong numbers"},
      {"F1.0", "F1.0.0", "line 16, 'F1.0.0': wrong numbers"},
      {"F1.0", "G1.0", "line 16, 'G1.0': no such op"},
      {"F1.0", "F1.0:moon", "line 16, 'F1.0:moon': wrong end"},
      {"F1.0", "F1.0:none", "line 16, 'F1.0:none': wrong end"},
      {"F1.0", "F1.0+colour=1", "line 16, 'F1.0+colour=1': wrong end"},
      {"F1.0", "F1.0+unit=1", "line 16, 'F1.0+unit=1': wrong end"},
      {"F1.0", "F1.99999999999", "line 16, 'F1.99999999999': wrong numbers"},
      {"wait@8", "wait8", "line 16, 'wait8': expected @"},
      {"wait@8", "wait@", "line 16, 'wait@': wrong numbers"},
      {"send2", "send", "line 17, 'send': wrong numbers"},
      {"F2.0 F3.0", "F2.0  F3.0", "line 17, '': no such op"},
      {"transfers usual", "tensor_parallel no", "line 15, 'no': expected yes"},
      {"transfers usual", "tensor_parallel yes\ntransfers usual",
       "line 16, 'transfers': expected 'partial'"},
      {"transfers usual", "tensor_parallel yes\npartial 1 0 7 0", "line 16, '7': expected 0 or 1"},
      {"transfers usual", "tensor_parallel yes\npartial 1", "partial has 1 entries for 4 units"},
      {"1: load0", "2: load0", "line 17, '2': expected the ops of pipeline rank 1"},
      {"update2 update3\n", "update2 update3\n2: norm\n", "line 18, '2: norm': expected the end"},
  };
  for (const Case& c : cases) {
    std::string text = good;
    text.replace(text.find(c.from), std::string(c.from).size(), c.to);
    const Result<Program> result = parse_program(text);
    ASSERT_FALSE(result.ok()) << c.to;
    EXPECT_EQ(result.error().code, Code::kSyntax);
    EXPECT_NE(result.error().message.find(c.message), std::string::npos) << result.error().message;
  }
  for (std::size_t end = 0; end < good.find("\n1: ") + 1; ++end)
    EXPECT_FALSE(parse_program(good.substr(0, end)).ok()) << end;
}

// Every program that differs in one number from another has another hash.
TEST(ProgramText, HashShowsEveryChange) {
  const Program good = zero3();
  std::set<Hash128> hashes = {program_hash(good)};
  int num_changes = 0;
  const auto change = [&](const std::function<void(Program&)>& edit) {
    Program changed = good;
    edit(changed);
    ++num_changes;
    EXPECT_TRUE(hashes.insert(program_hash(changed)).second) << num_changes;
  };
  change([](Program& p) { ++p.step.shape.coords; });
  change([](Program& p) { ++p.step.shape.chunks; });
  change([](Program& p) { ++p.step.shape.microbatches; });
  change([](Program& p) { p.step.placement = pipeline::Placement::kV; });
  change([](Program& p) { ++p.step.stage_begin[1]; });
  change([](Program& p) { p.step.zero = 0; });
  change([](Program& p) { p.step.period = Period::kStep; });
  change([](Program& p) { p.step.replicas = false; });
  change([](Program& p) { p.step.tied = false; });
  change([](Program& p) { p.step.recompute = {}; });
  change([](Program& p) { p.step.recompute[1] = false; });
  change([](Program& p) { ++p.step.resident_units; });
  change([](Program& p) { ++p.step.prefetch; });
  change([](Program& p) { p.step.forward_only = true; });
  change([](Program& p) { p.step.noise = true; });
  change([](Program& p) { p.step.checks = true; });
  change([](Program& p) { p.step.tensor_parallel = true; });
  change([](Program& p) { p.step.experts = {false, true, false}; });
  change([](Program& p) { p.step.experts = {false, false, false}; });
  change([](Program& p) { p.step.experts = {false, true, false}, p.step.routed = 4; });
  change([](Program& p) { p.step.partial = {false, false, true}; });
  change([](Program& p) {
    p.step.tensor_parallel = true;
    p.step.partial = {false, true, false};
  });
  for (std::size_t i = 0; i < good.lists[0].size(); ++i) {
    for (const OpField& field : kOpFields)
      change([&](Program& p) { p.lists[0][i].*field.member += 1000; });
    change([&](Program& p) { p.lists[0][i].group = CommGroup::kPipeline; });
    change([&](Program& p) { p.lists[0].insert(p.lists[0].begin() + static_cast<int>(i), Op{}); });
  }
  change([](Program& p) { p.lists[0].pop_back(); });
  change([](Program& p) { p.lists.emplace_back(); });
  change([](Program& p) {
    p.lists.emplace_back(1, p.lists[0].back());
    p.lists[0].pop_back();
  });
  for (const Transfer& transfer :
       {Transfer{}, Transfer{.is_grad = true}, Transfer{.unit = 1}, Transfer{.microbatch = 1},
        Transfer{.from = {1}, .to = {}}, Transfer{.from = {}, .to = {1}}})
    change([&](Program& p) { p.transfers.push_back(transfer); });
}

TEST(ProgramText, TakesLinearTime) {
  Program program = naive_1f1b();
  for (auto& list : program.lists) {
    const std::vector<Op> once = list;
    while (list.size() < 120'000) list.insert(list.end(), once.begin(), once.end());
  }
  const auto start = std::chrono::steady_clock::now();
  expect_round_trip(program);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 10);
}

}  // namespace
}  // namespace lockstep::program
