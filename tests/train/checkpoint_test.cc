// Saved under one layout and loaded under another: every bit of the state is the same, and training
// goes on as if nothing had happened.
#include "lockstep/train/checkpoint.h"

#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

#include "lockstep/checkpoint/folder.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/tensor/as_buffer.h"
#include "lockstep/train/checkpoint_state.h"
#include "lockstep/verify/image.h"
#include "tests/train/families.h"
#include "tests/train/sessions.h"
#include "tests/train/tiny.h"

namespace lockstep::train {
namespace {

constexpr Seconds kSaveDeadline = {300};
constexpr std::int64_t kBefore = 2;  // steps before the save
constexpr const char* kData = "made up";

// Two sequences in a microbatch.
const std::vector<std::string> kSavedLayouts = {
    "dp1 zero0 m8 step",
    "dp2 zero0 m4 step",
    "dp2 zero1 m4 step",
    "dp2 zero2 m4 mb",
    "dp2 zero3 m4 mb",
    "dp4 zero1 m2 step",
    "dp4 zero2 m2 mb",
    "dp4 zero3 m2 mb",
    "dp2x2 zero1 m2 step",
    "dp2x2 zero3 m2 mb",
    "dp4x1 zero2 m2 mb",
    "tp2 dp1 zero0 m8 step",
    "tp2 dp2 zero1 m4 step",
    "tp2 dp2 zero3 m4 mb",
    "tp2 dp2 nosp zero2 m4 mb",
    "tp2 dp2x2 zero3 m2 mb",
    "pp2 dp1 zero0 1f1b m8 step",
    "pp2 dp2 zero1 gpipe m4 step",
    "pp2 dp2 zero3 1f1b m4 mb",
    "pp2 dp2x2 zero2 zb-h1 m2 mb",
    "pp4 dp1 zero1 1f1b m8 step",
    "pp2 dp1 zero3 zbv vpp2 m8 mb",
    "pp2 dp1 zero1 interleaved vpp2 m8 step",
    "tp2 pp2 dp1 zero1 zb-h1 m8 step",
    "tp2 pp2 dp2 zero3 1f1b m4 mb",
    "pp2 dp2 zero0 v-half vpp2 m4 step recompute=full",
    "pp4 dp2 zero2 eager-1f1b m4 mb",
};

std::string bits_class(const Job& job) {
  const spec::Layout& layout = job.spec.layout;
  return join_parts("tp", layout.degrees.tp, layout.degrees.tp > 1 && !layout.sp ? " nosp" : "",
                    " dp", layout.degrees.dp, " ", spec::name_of(layout.reduce));
}

data::MockTokens made_up(const Job& job) { return {1, job.model.config.vocab, true}; }

// The state of all ranks as one image; each rank adds its pieces.
class Gather {
 public:
  explicit Gather(const Job& job)
      : job_(job),
        builder_(job.model, 1, tensor::scalar_type_of(wide_type(job.workspace.unit.dtype)),
                 job.mesh.degree(mesh::Axis::kTensor), job.mesh.degree(mesh::Axis::kExpert),
                 job.mesh.degree(mesh::Axis::kExpertTensor)) {}

  void add(Session& session) {
    for (const int segment : session.own_segments()) {
      const auto put = [&](verify::Role role, const at::Tensor& data) {
        builder_.add({0, segment, role, session.place().tensor,
                      session.workspace().own_range(segment), data.clone()});
      };
      const auto state = [&](runtime::StateRole role) {
        return session.workspace().state(segment, role);
      };
      put(verify::Role::kGradient, at::zeros_like(state(runtime::StateRole::kParameter)));
      put(verify::Role::kParameter, state(runtime::StateRole::kParameter));
      put(verify::Role::kFirstMoment, state(runtime::StateRole::kFirstMoment));
      put(verify::Role::kSecondMoment, state(runtime::StateRole::kSecondMoment));
    }
  }
  void set(const StepReport& report) { builder_.set_report(0, report); }
  // Of a state without a report.
  void set_biases(Session& session) { biases_ = session.workspace().router_bias(); }
  verify::StepImage take() {
    verify::StepImage image = std::move(builder_.take()[0]);
    if (image.router_bias.empty()) image.router_bias = biases_;
    EXPECT_EQ(builder_.disagreement(), "");
    return image;
  }

 private:
  const Job& job_;
  verify::ImageBuilder builder_;
  std::vector<float> biases_;
};

std::string image_bits(const verify::StepImage& image) {
  return strf("%a %a ", image.loss, image.grad_norm) + to_hex(image.digest());
}

class CheckpointAnyToAny : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_of(std::size_t layout) const { return folder_ + "/" + std::to_string(layout); }

  // Trains, saves after kBefore steps and trains one more.
  struct Run {
    verify::StepImage saved, next;
  };
  Run save(const Job& job, const std::string& folder) {
    const auto tokens = made_up(job);
    Gather saved(job), next(job);
    on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
      Saver saver(job, session, world, "", {.folder = folder, .data = kData, .lockstep = "test"},
                  kSaveDeadline);
      for (std::int64_t step = 0; step < kBefore; ++step) session.step(step);
      saver.save({kBefore, job.batch(kBefore).first, 77});
      saved.add(session);
      if (world.rank().value == 0) saved.set_biases(session);
      const StepReport report = session.step(kBefore);  // while it is being written
      saver.finish();
      next.add(session);
      if (world.rank().value == 0) next.set(report);
    });
    return {saved.take(), next.take()};
  }

  Run go_on(const Job& job, const std::string& folder) {
    const auto tokens = made_up(job);
    Gather loaded(job), next(job);
    on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
      const auto found = load(job, session, world, "", folder, kData, kSaveDeadline);
      ASSERT_TRUE(found.ok()) << found.error().message;
      EXPECT_EQ(found->progress, (Progress{kBefore, job.batch(kBefore).first, 77}));
      loaded.add(session);
      if (world.rank().value == 0) loaded.set_biases(session);
      const StepReport report = session.step(found->progress.step);
      next.add(session);
      if (world.rank().value == 0) next.set(report);
    });
    return {loaded.take(), next.take()};
  }

  // From every layout to every other.
  void go_on_from_each(const spec::Spec& spec, const std::vector<std::string>& layouts) {
    for (std::size_t from = 0; from < layouts.size(); ++from) {
      const Run run = save(job_of(spec, layouts[from]), folder_of(from));
      for (const std::string& to : layouts) {
        SCOPED_TRACE(layouts[from] + " -> " + to);
        const Job job = job_of(spec, to);
        const Run again = go_on(job, folder_of(from));
        EXPECT_EQ(again.saved.digest(), run.saved.digest());
        EXPECT_EQ(image_bits(again.next), bits_from(run.saved, job));
        if (to == layouts[from]) {
          EXPECT_EQ(image_bits(again.next), image_bits(run.next));
        }
      }
    }
  }

  // In memory, by the way that `verify` uses.
  static std::string bits_from(const verify::StepImage& image, const Job& job) {
    const auto tokens = made_up(job);
    const verify::StepOrder order = {kBefore, &image};
    return image_bits(verify::run_trial(job, tokens, {&order, 1}, kSaveDeadline).images[0]);
  }

  const std::string folder_ = testing::TempDir() + "any-to-any-" +
                              testing::UnitTest::GetInstance()->current_test_info()->name();
};

using CheckpointSlow = CheckpointAnyToAny;

// By default a part of all pairs; LOCKSTEP_ALL_RESHARDS=1 tries all of them.
TEST_F(CheckpointSlow, EveryLayoutGoesOnFromEveryOther) {
  const bool all = std::getenv("LOCKSTEP_ALL_RESHARDS") != nullptr;
  const spec::Spec spec = tiny_spec(true, DType::kF64);
  std::vector<Job> jobs;
  std::vector<Run> runs;
  for (std::size_t i = 0; i < kSavedLayouts.size(); ++i) {
    jobs.push_back(job_of(spec, kSavedLayouts[i]));
    runs.push_back(save(jobs[i], folder_of(i)));
  }
  std::map<std::pair<std::string, std::size_t>, std::string> known;
  int pairs = 0, same_class = 0;
  double worst = 0;
  for (std::size_t from = 0; from < jobs.size(); ++from)
    for (std::size_t to = 0; to < jobs.size(); ++to) {
      // A sample that has every layout on both sides.
      if (from == to ||
          (!all && (to + jobs.size() - from) % jobs.size() != 1 && (3 * from + to) % 41 != 0))
        continue;
      SCOPED_TRACE(kSavedLayouts[from] + " -> " + kSavedLayouts[to]);
      const Run run = go_on(jobs[to], folder_of(from));
      EXPECT_EQ(run.saved.digest(), runs[from].saved.digest());
      auto [due, is_new] = known.try_emplace({to_hex(runs[from].saved.digest()), to}, "");
      if (is_new) due->second = bits_from(runs[from].saved, jobs[to]);
      EXPECT_EQ(image_bits(run.next), due->second);
      ++pairs;
      if (bits_class(jobs[from]) == bits_class(jobs[to])) {
        EXPECT_EQ(image_bits(run.next), image_bits(runs[to].next));
        ++same_class;
        continue;
      }
      // Design 7: a free run of three steps.
      const bool tensor_parallel =
          jobs[from].spec.layout.degrees.tp * jobs[to].spec.layout.degrees.tp > 1;
      const double error = compare(jobs[to].model, run.next, runs[to].next,
                                   verify::Role::kParameter, jobs[to].adamw(kBefore).others.lr)
                               .error;
      EXPECT_LE(error, tensor_parallel ? 1e-8 : 1e-10);
      worst = std::max(worst, error);
    }
  std::printf("%d pairs of %zu layouts, %d within a class (bits), the others within %.1e\n", pairs,
              jobs.size(), same_class, worst);
  EXPECT_GE(pairs, all ? 500 : 40);
}

// bf16 has masters, an untied model a head of its own, and both are saved while training goes on.
TEST_F(CheckpointAnyToAny, MastersAndUntiedHeadsToo) {
  go_on_from_each(tiny_spec(false, DType::kBF16),
                  {"dp2 zero1 m4 step", "pp2 dp2 zero1 1f1b m4 step", "tp2 dp2 zero3 m4 step",
                   "dp2 zero3 m4 step",
                   // Two key-value heads and a vocabulary of 98.
                   "tp4 dp1 zero1 m8 step"});
}

// Experts have shards of their own; ranks that share sequences are among those of all shards. What
// no rank has a shard of, selection biases, comes back too.
TEST_F(CheckpointAnyToAny, ExpertsAndSharedSequencesToo) {
  spec::Spec spec = dots1_spec();
  spec.train.dtype = DType::kBF16;
  go_on_from_each(
      spec, {"dp1 zero0 m8 step", "dp2x2 ep2 zero2 m2 step", "tp2 etp2 pp2 dp2 zero1 1f1b m4 step",
             "tp2 dp2 ep4 zero3 m4 step", "cp2 dp2 ep4 zero1 m4 step",
             "tp4 etp2 dp1 ep2 zero0 m8 step", "tp2 dp2x1 ep2 zero1 m4 step"});
}

TEST_F(CheckpointAnyToAny, OtherModelsSettingsAndDataAreRefusedWithBothValues) {
  const spec::Spec spec = tiny_spec(true, DType::kF64);
  save(job_of(spec, "dp2 zero1 m4 step"), folder_);
  const auto refused = [&](const spec::Spec& other, const char* data) {
    const Job job = job_of(other, "dp1 zero0 m8 step");
    std::string message;
    on_every_rank(job, made_up(job), [&](comm::World& world, Session& session) {
      const auto found = load(job, session, world, "", folder_, data, kSaveDeadline);
      ASSERT_FALSE(found.ok());
      EXPECT_EQ(found.error().code, Code::kOtherCheckpoint);
      message = found.error().message;
      if (other.model == spec.model) {
        EXPECT_TRUE(load_weights(job, session, world, "weights", folder_, kSaveDeadline).ok());
      }
    });
    return message;
  };
  spec::Spec other = spec;
  other.model.layers = 4;
  EXPECT_NE(refused(other, kData).find("another model: layers is 5 there and 4 here (digest "),
            std::string::npos);
  other = spec;
  other.train.lr.peak = 0.5;
  other.train.seed = 7;
  EXPECT_NE(refused(other, kData).find("seed is 1234 there and 7 here; lr is 0.01"),
            std::string::npos);
  EXPECT_NE(refused(spec, "another").find("their digest is made up there and another here"),
            std::string::npos);
}

TEST_F(CheckpointAnyToAny, DamageIsFoundOnAnyRankAndAnEarlierOneTaken) {
  const Job job = job_of(tiny_spec(true, DType::kF32), "dp2 zero3 m4 mb");
  on_every_rank(job, made_up(job), [&](comm::World& world, Session& session) {
    Saver saver(job, session, world, "", {.folder = folder_, .data = kData}, kSaveDeadline);
    for (std::int64_t step = 0; step < 3; ++step) {
      session.step(step);
      saver.save({step + 1, 16 * (step + 1), 0});
    }
    saver.finish();
  });
  EXPECT_EQ(checkpoint::candidates(files::real_disk(), folder_).size(), 2u);
  const std::string hurt = folder_ + "/step-00000003/rank-00001.safetensors";
  {
    std::FILE* const file = std::fopen(hurt.c_str(), "r+b");
    ASSERT_NE(file, nullptr);
    std::fseek(file, -100, SEEK_END);
    std::fputc('?', file);
    std::fclose(file);
  }
  on_every_rank(job, made_up(job), [&](comm::World& world, Session& session) {
    const auto found = load(job, session, world, "", folder_, kData, kSaveDeadline);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->progress.step, 2);
    ASSERT_EQ(found->skipped.size(), 1u);
    EXPECT_EQ(found->skipped[0].code, Code::kCorruptCheckpoint);
    EXPECT_NE(found->skipped[0].message.find(hurt), std::string::npos);
    const auto named =
        load(job, session, world, "named", folder_ + "/step-00000003", kData, kSaveDeadline);
    ASSERT_FALSE(named.ok());
    EXPECT_NE(named.error().message.find("of tensor `"), std::string::npos);
    // Whoever does not know that it is damaged refuses it; whoever does sets it aside.
    Saver saver(job, session, world, "other", {.folder = folder_, .data = kData}, kSaveDeadline);
    EXPECT_THROW(saver.begin_at(2, {}), IoError);
    EXPECT_EQ(found->damaged, std::vector<std::string>{folder_ + "/step-00000003"});
    EXPECT_EQ(saver.begin_at(2, found->damaged),
              std::vector<std::string>{folder_ + "/step-00000003.damaged"});
  });
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/step-00000003.damaged/rank-00001.safetensors"));
}

// Of two runs that save to one folder the second is refused, on every rank, and the first goes on.
TEST_F(CheckpointAnyToAny, AFolderHasOneOwner) {
  const Job job = job_of(tiny_spec(true, DType::kF32), "dp2 zero1 m4 step");
  on_every_rank(job, made_up(job), [&](comm::World& world, Session& session) {
    {
      Saver saver(job, session, world, "first", {.folder = folder_, .data = kData}, kSaveDeadline);
      session.step(0);
      saver.save({1, 16, 0});
      try {
        Saver(job, session, world, "second", {.folder = folder_, .data = kData}, kSaveDeadline);
        ADD_FAILURE() << "two owners";
      } catch (const IoError& error) {
        EXPECT_EQ(error.error().code, Code::kConflict);
        EXPECT_NE(error.error().message.find("is in use by process "), std::string::npos);
      }
      EXPECT_TRUE(saver.finish()->path.ok());
    }
    EXPECT_NO_THROW(
        Saver(job, session, world, "third", {.folder = folder_, .data = kData}, kSaveDeadline));
  });
}

// What a rank's disk says is told on every rank, and the next save tries anew.
TEST_F(CheckpointAnyToAny, AFailedWriteIsToldToAllAndLeavesNothing) {
  const Job job = job_of(tiny_spec(true, DType::kF32), "dp2 zero1 m4 step");
  on_every_rank(job, made_up(job), [&](comm::World& world, Session& session) {
    Saver saver(job, session, world, "", {.folder = folder_, .data = kData}, kSaveDeadline);
    session.step(0);
    saver.save({1, 16, 0});
    EXPECT_TRUE(saver.finish()->path.ok());
    EXPECT_EQ(saver.ended()->step, 1);
    if (world.rank().value == 0) std::filesystem::rename(folder_, folder_ + "-away");
    saver.save({2, 32, 0});
    const auto failed = saver.finish();
    EXPECT_EQ(failed->step, 2);
    EXPECT_EQ(failed->path.error().code, Code::kDiskFailed);
    if (world.rank().value == 0) std::filesystem::rename(folder_ + "-away", folder_);
    saver.save({2, 32, 0});
    EXPECT_EQ(saver.finish()->path.value(), folder_ + "/step-00000002");
    EXPECT_FALSE(saver.ended()->path.ok());
    EXPECT_TRUE(saver.ended()->path.ok());
    EXPECT_FALSE(saver.ended());
  });
}

TEST(CheckpointState, NoiseAveragesGoOn) {
  spec::Spec spec = tiny_spec(false, DType::kF32);
  spec.train.noise_scale = 4;
  const Job job = job_of(spec, "dp1 zero0 m8 step");
  on_every_rank(job, made_up(job), [&](comm::World&, Session& session) {
    session.step(0);
    const NoiseScale::Averages before = session.noise_scale()->averages();
    EXPECT_EQ(before.seen, 1);
    const checkpoint::Facts facts = running_state(session);
    session.step(1);
    EXPECT_NE(session.noise_scale()->averages(), before);
    EXPECT_TRUE(set_running_state(session, facts).ok());
    EXPECT_EQ(session.noise_scale()->averages(), before);
    EXPECT_TRUE(set_running_state(session, {}).ok()) << "the run before did not measure it";
    for (std::size_t i = 0; i < facts.size(); ++i)
      for (const auto change : {+[](std::pair<std::string, std::string>& f) { f.first += "2"; },
                                +[](std::pair<std::string, std::string>& f) { f.second += "x"; },
                                +[](std::pair<std::string, std::string>& f) { f.second = ""; }}) {
        checkpoint::Facts other = facts;
        change(other[i]);
        const auto refused = set_running_state(session, other);
        ASSERT_FALSE(refused.ok()) << other[i].first << " = " << other[i].second;
        EXPECT_EQ(refused.error().code, Code::kOtherCheckpoint);
        EXPECT_NE(refused.error().message.find(other[i].first + " = " + other[i].second),
                  std::string::npos)
            << refused.error().message;
      }
    checkpoint::Facts more = facts;
    more.emplace_back("loss_scale", "1024");
    EXPECT_FALSE(set_running_state(session, more).ok());
    EXPECT_EQ(session.noise_scale()->averages(), before);
  });
}

}  // namespace
}  // namespace lockstep::train
