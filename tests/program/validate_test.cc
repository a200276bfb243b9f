#include "lockstep/program/validate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/lower.h"
#include "lockstep/program/text.h"
#include "tests/program/listing.h"

namespace lockstep::program {
namespace {

std::string report(const Program& program) {
  std::string text;
  for (const Problem& problem : validate(program)) text += to_text(problem) + "\n";
  return text;
}

TEST(Validate, ProgramsWrittenByHandAreSound) {
  EXPECT_EQ(report(naive_1f1b()), "");
  EXPECT_EQ(report(gpipe()), "");
  EXPECT_EQ(report(zero3()), "");
  for (int zero : {0, 1, 2}) EXPECT_EQ(report(tiny(zero)), "");
}

// Replaces the only `from` of the program's text; list indices of waits stay as they are.
Program edited(const Program& program, const std::string& from, const std::string& to) {
  std::string text = to_text(program);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  EXPECT_EQ(text.find(from, at + 1), std::string::npos) << from;
  text.replace(at, from.size(), to);
  return parse_program(text).value();
}

struct Edit {
  const char* from;
  const char* to;
  const char* problem;  // must be among the reported
};

void expect_problems(const Program& program, const std::vector<Edit>& edits) {
  for (const Edit& edit : edits) {
    SCOPED_TRACE(std::string(edit.from) + " -> " + edit.to);
    const std::string found = report(edited(program, edit.from, edit.to));
    EXPECT_NE(found.find(edit.problem), std::string::npos) << found;
  }
}

TEST(Validate, NamesWhatIsWrongInAPipeline) {
  expect_problems(
      naive_1f1b(),
      {{"F1.0", "F1.1", "pipeline rank 0: F of unit 1, microbatch 0 is missing"},
       {"F1.0", "F1.1", "pipeline rank 0, op 6, F of unit 1, microbatch 1: happens twice"},
       {"F1.0", "F2.0", "op 2, F of unit 2, microbatch 0: the unit belongs to pipeline rank 1"},
       {"F1.0", "F9.0", "op 2, F of unit 9, microbatch 0: unit 9 does not exist"},
       {"F1.0", "F1.0+period=0", "period 0 means nothing to this op"},
       {"F2.0 F3.0", "F3.0 F2.0",
        "pipeline rank 1, op 4, F of unit 3, microbatch 0: reads act(2,0), which does not exist "
        "here"},
       {"B1.0 B0.0", "I1.0 W1.0", "pipeline rank 0: B of unit 0, microbatch 0 is missing"},
       {"B3.0", "I3.0", "I of unit 3, microbatch 0: is no part of this step on this pipeline rank"},
       {"send0", "send1",
        "op 7, send of output of unit 1, microbatch 1, to pipeline rank 1: happens twice"},
       {"send0", "recv0",
        "op 3, receive of output of unit 1, microbatch 0, from pipeline rank 0: is no"},
       {"send0", "send0:self", "takes part in 'self' instead of 'peer'"},
       {"wait@8 B1.0", "wait@3 B1.0",
        "pipeline rank 0, op 10, B of unit 1, microbatch 0: reads recv_buffer(2) before a wait for "
        "receive of gradient of unit 1, microbatch 0, from pipeline rank 1 (op 8)"},
       {"wait@3 wait@7", "wait@3 wait@3",
        "op 17, wait for send of output of unit 1, microbatch 0, to "
        "pipeline rank 1: a second wait for the same op"},
       {"wait@3 wait@7", "wait@3 wait@3",
        "op 7, send of output of unit 1, microbatch 1, to pipeline rank 1: "
        "nothing waits for it"},
       {"wait@3 wait@7", "wait@3 wait@99", "op 17, wait for op 99: target 99 does not exist"},
       {"wait@3 wait@7", "wait@3 wait@6", "op 6 is not asynchronous"},
       {"wait@3 wait@7", "wait@3 wait@18", "comes before op 18, for which it waits"},
       {"load0 count", "load0 load0", "op 1, load of microbatch 0: happens twice"},
       {"load0 count", "load0 load0", "pipeline rank 1: count of valid tokens is missing"},
       {"load0 F0.0", "count F0.0", "count of valid tokens: is no part of this step"},
       {"norm update0", "update0 norm", "update of unit 0: reads norm, which does not exist here"},
       {"B1.1 B0.1", "B0.1 B1.1", "reads grad(0,1), which does not exist here"},
       {"update2 update3", "update2", "pipeline rank 1: acc_grad(3) is never freed"},
       {"tied no", "tied yes", "pipeline rank 1: tied reduction is missing"},
       {"recompute none", "recompute 0 1 0 0", "R of unit 1, microbatch 0 is missing"},
       {"zero 0", "zero 1", "all-gather of updated parameters of unit 0 is missing"},
       {"zero 0", "zero 1", "reads param(0) before it is all-gathered"},
       {"reduce1.0", "reduce1.0:shard",
        "reduce of unit 1, period 0: takes part in 'shard' instead of 'data'"},
       {"transfers usual", "transfers 0",
        "transfer 0 is not, as it should be, that of the output of "
        "unit 1, microbatch 0"}});
}

TEST(Validate, NamesWhatIsWrongUnderZero3) {
  expect_problems(
      zero3(),
      {{"count load0 gather0 wait@2 F0.0", "count load0 gather0 F0.0 wait@2",
        "op 3, F of unit 0, microbatch 0: reads param(0) before a wait for gather of unit 0 (op "
        "2)"},
       {"F2.0 gather2 wait@10", "F2.0 gather1 wait@10", "defines param(1), which exists already"},
       {"R1.0 I1.0", "I1.0 R1.0", "the order of one microbatch is F, R, I, W"},
       {"reduce2.0", "reduce2.0:data", "takes part in 'data' instead of 'shard'"},
       {"reduce2.0", "reduce2.1", "reduce of unit 2, period 0 is missing"},
       {"across1.1", "across1.1:shard", "takes part in 'shard' instead of 'replicate'"},
       {"wait@61 tied", "tied wait@61",
        "tied reduction: uses grad_shard(0) after 1 of 2 reductions"},
       {"norm update0", "update0 norm", "reads norm"},
       {"tied norm", "norm tied", "norm: uses grad_shard(0) after 2 of 3 reductions"},
       {"zero 3", "zero 2", "gather of unit 0: is no part of this step"}});
}

// Embedding, block, head, with partial gradients of block and head, two periods, tied: the whole
// backward pass, then `end`.
Program with_partial_gradients(const std::string& end) {
  std::string list = "count";
  for (const std::string mb : {"0", "1"}) {
    list += " load" + mb;
    for (const char* op : {" F0.", " F1.", " F2.", " B2.", " B1.", " B0."}) list += op + mb;
    for (const std::string unit : {"0.", "1."})
      list += " reduce" + unit + mb + " wait:reduce" + unit + mb;
    if (mb == "0") list += " reduce2.0 wait:reduce2.0";
  }
  return listing({.shape = {.microbatches = 2},
                  .stage_begin = {0, 3},
                  .period = Period::kMicrobatch,
                  .tied = true,
                  .tensor_parallel = true,
                  .partial = {false, true, true}},
                 {list + " " + end + " update0 update1 update2"});
}

TEST(Validate, NamesWhatIsWrongWithPartialGradients) {
  const std::string last = "reduce2.1 wait:reduce2.1 ", one = "replicated1 wait:replicated1 ",
                    two = "replicated2 wait:replicated2 ";
  const std::string good = last + one + two + "tied norm";
  EXPECT_EQ(report(with_partial_gradients(good)), "");
  EXPECT_EQ(report(with_partial_gradients(one + last + two + "tied norm")), "");
  EXPECT_EQ(report(with_partial_gradients(last + "replicated2 replicated1 wait:replicated1 "
                                                 "wait:replicated2 tied norm")),
            "");
  const std::vector<std::pair<std::string, const char*>> cases = {
      {last + one + "tied norm",
       "pipeline rank 0: reduce replicated parameters of unit 2 is missing"},
      {last + one + two + two + "tied norm",
       "reduce replicated parameters of unit 2: happens twice"},
      {last + one + two + "replicated0 wait:replicated0 tied norm",
       "reduce replicated parameters of unit 0: is no part of this step"},
      {last + one + "replicated2:data wait:replicated2:data tied norm",
       "reduce replicated parameters of unit 2: takes part in 'data' instead of 'tensor'"},
      {two + last + one + "tied norm",
       "reduce replicated parameters of unit 2: uses acc_grad(2) after 1 of 2 reductions"},
      {"replicated2 " + last + one + "wait:replicated2 tied norm",
       "changes acc_grad(2) before a wait for reduce replicated parameters of unit 2"},
      {last + one + "tied " + two + "norm",
       "tied reduction: uses acc_grad(2) after 2 of 3 reductions"},
      {last + two + "tied norm " + one, "norm: uses acc_grad(1) after 2 of 3 reductions"},
      {last + two + "tied norm " + one, "changes acc_grad(1) after norm used it"},
      {last + two + "replicated1 tied norm wait:replicated1",
       "norm: reads acc_grad(1) before a wait for reduce replicated parameters of unit 1"},
      {last + one + "replicated2 tied norm", "nothing waits for it"},
      {last + one + two + "tied norm:data_then_pipeline",
       "norm: takes part in 'data_then_pipeline' instead of 'data_tensor_pipeline'"}};
  for (const auto& [end, problem] : cases) {
    const std::string found = report(with_partial_gradients(end));
    EXPECT_NE(found.find(problem), std::string::npos) << end << "\n" << found;
  }
}

// W of one unit out of order is the fault that only changes bits.
TEST(Validate, MicrobatchesAscend) {
  const Program program = gpipe();
  Program swapped = program;
  auto& list = swapped.lists[1];
  const auto at = [&](const std::string& token) {
    return std::ranges::find_if(list,
                                [&](const Op& op) { return op_token(program.step, op) == token; });
  };
  std::iter_swap(at("B3.0"), at("B3.1"));
  const std::string found = report(swapped);
  EXPECT_NE(found.find("comes after microbatch 1 of the same unit"), std::string::npos) << found;
}

TEST(Validate, TakesLinearTime) {
  const pipeline::Shape shape = {.coords = 16, .chunks = 1, .microbatches = 500};
  const pipeline::Schedule schedule = pipeline::find("1f1b")->build(shape).value();
  const Program program =
      lower(schedule, {.shape = shape, .stage_begin = split_units(130, 16), .zero = 2}).value();
  EXPECT_GT(program.lists[1].size(), 10'000u);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(report(program), "");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 10);
}

TEST(Validate, StopsAtTheLimit) {
  Program program = naive_1f1b();
  program.lists[0].clear();
  EXPECT_EQ(validate(program, 3).size(), 3u);
  EXPECT_GT(validate(program).size(), 3u);
}

TEST(Validate, RefusesUnsoundFrames) {
  const Program good = naive_1f1b();
  const auto with = [&](auto change) {
    Program program = good;
    change(program);
    return report(program);
  };
  EXPECT_NE(with([](Program& p) { p.lists.pop_back(); }).find("1 lists for 2 pipeline ranks"),
            std::string::npos);
  EXPECT_NE(with([](Program& p) { p.step.stage_begin = {0, 4}; }).find("stage_begin has 2 entries"),
            std::string::npos);
  EXPECT_NE(with([](Program& p) { p.step.stage_begin = {0, 5, 4}; }).find("stage 1 has no unit"),
            std::string::npos);
  EXPECT_NE(with([](Program& p) { p.step.zero = 4; }).find("between 0 and 3"), std::string::npos);
  EXPECT_NE(with([](Program& p) { p.step.recompute = {true}; }).find("recompute has 1 entries"),
            std::string::npos);
  EXPECT_NE(with([](Program& p) { p.step.shape.microbatches = 0; }).find("less than 1"),
            std::string::npos);
  EXPECT_NE(with([](Program& p) {
              p.transfers.push_back(p.transfers.back());
            }).find("transfer 4, of the gradient of unit 1, microbatch 1, crosses no boundary"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::program
