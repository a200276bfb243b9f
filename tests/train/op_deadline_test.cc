// Ranks that meet about a checkpoint wait for one another as long as train.op_deadline says.
#include "lockstep/train/trainer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>

#include "lockstep/base/text.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/data/mock_tokens.h"
#include "tests/train/tiny.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr Seconds kShort = {2}, kLate = {15};

class CheckpointMeetingSlow : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }

  // Goes on from the newest checkpoint for a step and saves. What the run failed with.
  std::string go_on(std::int64_t steps, const comm::Lateness& lateness) {
    spec::Spec spec = tiny_spec(false, DType::kF32);
    spec.train.steps = steps;
    spec.train.op_deadline = kShort;
    const Job job = job_of(spec, "dp2 zero1");
    const data::MockTokens text(1, spec.model.vocab, true);
    const RunOptions options{.save = folder_, .start = Start::kResumeOrNew};
    try {
      comm::run_local(2,
                      [&](comm::World& world) {
                        const RunEnding end =
                            train(job, world, {&text, nullptr, "made-up"}, options, false);
                        EXPECT_FALSE(end.refused || end.unsaved);
                      },
                      {.lateness = lateness});
      return "";
    } catch (const comm::CommError& error) {
      return error.what();
    }
  }

  const std::string folder_ =
      fs::path(testing::TempDir()) / join_parts("checkpoint-meeting-", ::getpid());
};

// Whatever meeting it is: for the folder, the newest checkpoint, the files of a save, its end.
TEST_F(CheckpointMeetingSlow, WaitsAsLongAsTheRunSays) {
  ASSERT_EQ(go_on(1, {}), "");
  std::map<std::string, int> calls;
  ASSERT_EQ(go_on(2,
                  [&](const comm::Delivery& d) {
                    ++calls[std::string(d.group)];
                    return Seconds{0};
                  }),
            "");
  std::int64_t steps = 3;
  for (const char* group : {"savesave", "loadload"}) {
    ASSERT_GE(calls[group], 4) << group;
    for (int late = 0; late < calls[group]; late += 2) {
      int call = 0;
      const std::string failure = go_on(steps, [&](const comm::Delivery& d) {
        return d.group == group && call++ == late ? kLate : Seconds{0};
      });
      EXPECT_NE(failure.find(group), std::string::npos) << late << ": " << failure;
      EXPECT_NE(failure.find("before the deadline"), std::string::npos) << late << ": " << failure;
      ASSERT_EQ(go_on(steps++, {}), "") << "a failed meeting harms no later one";
    }
  }
}

}  // namespace
}  // namespace lockstep::train
