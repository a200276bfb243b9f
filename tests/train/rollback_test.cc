#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/train/run_metrics.h"
#include "lockstep/train/trainer.h"
#include "tests/train/sessions.h"
#include "tests/train/small.h"

namespace lockstep::train {
namespace {

// What rank 0 is told.
struct Watch final : RunObserver {
  void step(std::int64_t step, const StepReport&, std::optional<std::uint64_t> digest) override {
    told += join_parts(step, " ");
    last = digest.value();
  }
  void rolled_back(const Error& error, const Loaded& to) override {
    told += join_parts("back to ", to.progress.step, " ");
    why = error.message;
  }
  void set_aside(const std::string& path) override {
    told += join_parts("without ", std::filesystem::path(path).filename().string(), " ");
  }
  std::string told, why;
  std::uint64_t last = 0;
};

class Rollback : public testing::Test {
 protected:
  Rollback() {
    spec_.train.dtype = DType::kF32;
    spec_.batch.global_batch = 24;
  }
  ~Rollback() override { std::filesystem::remove_all(folder_); }

  RunEnding run(const char* layout, std::int64_t steps, std::int64_t interval,
                std::optional<BitFlip> flip, bool saves = true) {
    spec_.train.steps = steps;
    spec_.train.check_interval = interval;
    const Job job = job_of(spec_, layout);
    const data::MockTokens text(1, spec_.model.vocab, true);
    const RunData data{&text, nullptr, "made-up"};
    RunOptions options{.digests = true, .flip = flip};
    if (saves) {
      options.save = folder_;
      options.save_interval = 2;
      options.keep = 0;
      options.start = Start::kResumeOrNew;
    }
    RunEnding ending;
    watch_ = {};
    RunMetrics metrics(job, {.directory = folder_, .resumes = true});
    comm::run_local(job.mesh.world(), [&](comm::World& world) {
      std::vector<RunObserver*> observers;
      if (world.rank() == Rank{0}) observers.push_back(&watch_);
      if (world.rank() == Rank{0} && saves) observers.push_back(&metrics);
      const RunEnding own = train(job, world, data, options, false, observers);
      if (world.rank() == Rank{0}) ending = own;
    });
    return ending;
  }

  std::optional<std::int64_t> checked(std::int64_t step) const {
    return checkpoint::Checkpoint::open(folder_ + "/" + checkpoint::folder_name(step))
        .value()
        .manifest()
        .checked;
  }

  static BitFlip moment_of_rank_1(std::int64_t step) {
    return {Rank{1}, step, BitFlip::When::kBefore, Holding::kFirstMoment, 1, 3, 30};
  }

  spec::Spec spec_ = small_spec(false);
  const std::string folder_ =
      (std::filesystem::path(testing::TempDir()) / join_parts("rollback-", ::getpid())).string();
  Watch watch_;
};

// The run that lost a bit ends in the bits of the one that did not.
TEST_F(Rollback, GoesOnFromTheNewestCheckedCheckpoint) {
  for (const char* layout : {"dp2 zero1 m2", "dp3 zero0 m1", "tp2 pp2 dp2 zero3 m2"}) {
    EXPECT_EQ(run(layout, 8, 1, {}, /*saves=*/false).ending, Ending::kFinished);
    const std::uint64_t undisturbed = watch_.last;
    const RunEnding ending = run(layout, 8, 1, moment_of_rank_1(5));
    EXPECT_EQ(ending.ending, Ending::kFinished);
    EXPECT_FALSE(ending.corrupt || ending.unsaved);
    EXPECT_EQ(watch_.told, "0 1 2 3 4 back to 4 4 5 6 7 ") << layout;
    EXPECT_NE(watch_.why.find("in step 6: first moment of"), std::string::npos) << watch_.why;
    EXPECT_NE(watch_.why.find("rank 1"), std::string::npos) << watch_.why;
    EXPECT_EQ(watch_.last, undisturbed) << layout;
    for (const std::int64_t step : {2, 4, 6, 8}) EXPECT_EQ(checked(step), step);
    std::ifstream file(metrics_path(folder_));
    const std::string lines{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(lines.find("\"event\":\"roll_back\",\"step\":4"), std::string::npos) << lines;
    std::filesystem::remove_all(folder_);
  }
}

// Update computes a wrong number in the step before a save: replicas differ, so nobody saves.
TEST_F(Rollback, DoesNotSaveWhatReplicasDisagreeAbout) {
  const BitFlip flip = {Rank{2}, 3, BitFlip::When::kUpdate, Holding::kWeight, 2, 5, 12};
  EXPECT_EQ(run("dp3 zero0 m1", 8, 100, flip).ending, Ending::kFinished);
  EXPECT_EQ(watch_.told, "0 1 2 3 back to 2 2 3 4 5 6 7 ");
  EXPECT_NE(watch_.why.find("on rank 2 differs from that on ranks 0 and 1"), std::string::npos)
      << watch_.why;
}

TEST_F(Rollback, PassesCheckpointsThatNobodyCheckedBy) {
  EXPECT_EQ(run("dp2 zero1 m2", 2, 1, {}).ending, Ending::kFinished);
  EXPECT_EQ(run("dp2 zero1 m2", 4, 0, {}).ending, Ending::kFinished);
  EXPECT_EQ(checked(2), 2);
  EXPECT_EQ(checked(4), std::nullopt);
  EXPECT_EQ(run("dp2 zero1 m2", 8, 1, moment_of_rank_1(5)).ending, Ending::kFinished);
  EXPECT_EQ(watch_.told, "4 without step-00000004.damaged back to 2 2 3 4 5 6 7 ");
}

TEST_F(Rollback, EndsTheRunWhereNothingWasChecked) {
  EXPECT_EQ(run("dp2 zero1 m2", 2, 0, {}).ending, Ending::kFinished);
  for (const bool saves : {true, false}) {
    const RunEnding ending = run("dp2 zero1 m2", 4, 1, moment_of_rank_1(3), saves);
    EXPECT_EQ(ending.ending, Ending::kCorrupt);
    ASSERT_TRUE(ending.corrupt);
    EXPECT_EQ(ending.corrupt->code, Code::kCorruptState);
    EXPECT_EQ(checkpoint::candidates(files::real_disk(), folder_).size(), 1u) << "step 2 alone";
  }
}

}  // namespace
}  // namespace lockstep::train
