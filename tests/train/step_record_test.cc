#include "lockstep/train/step_record.h"

#include <gtest/gtest.h>

#include "lockstep/data/mock_tokens.h"
#include "tests/train/sessions.h"
#include "tests/train/tiny.h"

namespace lockstep::train {
namespace {

// Every op of every rank once, in order and one after the other, on one clock; the last steps only.
TEST(StepRecord, HoldsTheLastStepsOfAllRanks) {
  for (const char* layout : {"dp2 zero3 m2", "pp2 dp1 zb-h1 m4", "tp2 dp1 m2"}) {
    const Job job = job_of(tiny_spec(false, DType::kF32), layout);
    const data::MockTokens source(1, job.spec.model.vocab, false);
    cost::RunTimeline found;
    on_every_rank(job, source, [&](comm::World& world, Session& session) {
      StepRecord record(2);
      for (std::int64_t step = 0; step < 3; ++step) {
        session.step(step);
        record.add(step, session);
      }
      cost::RunTimeline own = record.collect(job, world, "", Deadline::after(Seconds{60}));
      if (world.rank() == Rank{0}) found = std::move(own);
    });
    ASSERT_EQ(found.steps.size(), 2u);
    EXPECT_EQ(found.steps[0].step, 1);
    EXPECT_EQ(found.steps[1].step, 2);
    EXPECT_TRUE(check_timeline(found, job.program, found.print, found.layout, "").ok()) << layout;
    for (const program::StepTimeline& step : found.steps) {
      Seconds first = {1e9};
      for (const program::RankTimeline& rank : step.ranks) {
        Seconds free;
        for (const program::TimedOp& op : rank.ops) {
          EXPECT_GE(op.start, free);
          EXPECT_GE(op.end, op.start);
          free = op.end;
        }
        first = std::min(first, rank.ops.front().start);
        // Threads say of every asynchronous op when it ran: before its Wait was over.
        for (const program::TimedOp& lane : rank.lanes) EXPECT_LE(lane.end, free);
      }
      EXPECT_LT(first, Seconds{0.1});
    }
  }
}

}  // namespace
}  // namespace lockstep::train
