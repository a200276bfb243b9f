#include "lockstep/train/trainer.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <set>
#include <string>

#include "lockstep/base/hash.h"
#include "lockstep/base/random.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/program/lower.h"
#include "lockstep/train/run_metrics.h"
#include "lockstep/verify/check_predictions.h"
#include "tests/train/hooked_workspace.h"
#include "tests/train/sessions.h"
#include "tests/train/tiny.h"

namespace lockstep::train {
namespace {

using runtime::StateRole;

// Sentences of a small grammar, as numbers of letters.
class Sentences final : public data::TokenSource {
 public:
  Sentences() {
    const RandomStream choice(3, "sentences");
    const std::array<const char*, 4> who = {"the cat ", "a small dog ", "my old friend ",
                                            "nobody "};
    const std::array<const char*, 3> does = {"sees ", "hears ", "would follow "};
    std::string text;
    for (std::uint64_t i = 0; i < 30; i += 3)
      text += std::string(who[choice.below(4, i)]) + does[choice.below(3, i + 1)] +
              who[choice.below(4, i + 2)] + ". ";
    letters_ = text;
    std::ranges::sort(letters_);
    letters_.erase(std::unique(letters_.begin(), letters_.end()), letters_.end());
    for (char c : text) text_.push_back(static_cast<std::int64_t>(letters_.find(c)));
  }

  void read(std::int64_t sample, std::span<std::int64_t> tokens,
            std::span<std::int64_t> labels) const override {
    const auto begin = static_cast<std::size_t>(
        RandomStream(4, "windows")
            .below(text_.size() - tokens.size(), static_cast<std::uint64_t>(sample)));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = text_[begin + i];
      labels[i] = text_[begin + i + 1];
    }
  }

  std::int64_t vocab() const { return static_cast<std::int64_t>(letters_.size()); }
  std::size_t size() const { return text_.size(); }

  // What a model that knows only how often letters occur can reach, in nats.
  double unigram_entropy() const {
    double entropy = 0;
    for (std::int64_t letter = 0; letter < vocab(); ++letter) {
      const double p = static_cast<double>(std::ranges::count(text_, letter)) /
                       static_cast<double>(text_.size());
      entropy -= p * std::log(p);
    }
    return entropy;
  }

 private:
  std::string letters_;
  std::vector<std::int64_t> text_;
};

std::vector<double> losses(const spec::Spec& spec, const Sentences& text, const char* layout) {
  const Job job = job_of(spec, layout);
  std::vector<double> found;
  on_every_rank(job, text, [&](comm::World& world, Session& session) {
    const int rank = world.rank().value;
    const std::atomic<bool> stop = false;
    const Ending ending = train_steps(session, 0, spec.train.steps, stop,
                                      [&](std::int64_t, const StepReport& report) {
                                        if (rank == 0) found.push_back(report.loss);
                                      });
    EXPECT_EQ(ending, Ending::kFinished);
  });
  return found;
}

TEST(TrainingSlow, LearnsATextAndZero3FollowsOneRank) {
  const Sentences text;
  spec::Spec spec = tiny_spec(true, DType::kF32);
  spec.model.layers = 2;
  spec.model.vocab = text.vocab();
  spec.batch = {32, 8, 1};
  spec.train = {300, {.peak = 1e-3, .warmup = 20}, 0.1, 1.0, 11, DType::kF32};
  const std::vector<double> one = losses(spec, text, "dp1 zero0 m1");
  const std::vector<double> four = losses(spec, text, "dp4 zero3 m1");
  ASSERT_EQ(one.size(), 300u);
  ASSERT_EQ(four.size(), 300u);
  double apart = 0;
  for (std::size_t step = 0; step < 50; ++step)
    apart = std::max(apart, std::abs(one[step] - four[step]));
  const double limit = text.unigram_entropy();
  const auto under = std::ranges::find_if(one, [&](double loss) { return loss < limit; });
  std::printf(
      "%zu letters of %lld kinds: unigram entropy %.3f nats, below it at step %td, loss %.3f at "
      "step 0, %.4f at step 299; zero3 on 4 ranks %.4f, apart by at most %.1e in 50 steps\n",
      text.size(), static_cast<long long>(text.vocab()), limit, under - one.begin(), one[0],
      one.back(), four.back(), apart);
  EXPECT_LT(one.back(), limit / 2);
  EXPECT_LE(apart, 1e-5);
  EXPECT_NEAR(four.back(), one.back(), 0.01 * one.back());
}

// Every bit of state that a rank owns.
std::string state_of(Session& session, const Job& job) {
  std::string bytes;
  for (int unit = 0; unit < job.model.num_units(); ++unit) {
    if (!job.program.step.holds(session.coord(), unit)) continue;
    for (StateRole role :
         {StateRole::kParameter, StateRole::kFirstMoment, StateRole::kSecondMoment}) {
      const at::Tensor state = session.workspace().state(unit, role).contiguous();
      bytes.append(static_cast<const char*>(state.const_data_ptr()),
                   static_cast<std::size_t>(state.nbytes()));
    }
  }
  return bytes;
}

constexpr const char* kLayouts[] = {"dp1 zero0 m2",
                                    "dp2 zero1 m2",
                                    "pp2 dp2 zero0 m2",
                                    "pp2 dp2 zero2 m2",
                                    "pp2 dp2x2 zero3 m2 recompute=full",
                                    "tp2 dp1 zero0 m2 nosp",
                                    "tp2 pp2 dp2 zero3 m2"};

// One parameter of one block is not a number: every rank of every layout must see it and none may
// move.
TEST(Training, AStepThatIsNotFiniteChangesNothingAnywhere) {
  const spec::Spec spec = tiny_spec(true, DType::kF32);
  const data::MockTokens tokens(1, spec.model.vocab, false);
  for (const char* layout : kLayouts) {
    const Job job = job_of(spec, layout);
    on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
      const int rank = world.rank().value;
      const std::atomic<bool> stop = false;
      const auto nothing = [](std::int64_t, const StepReport&) {};
      EXPECT_EQ(train_steps(session, 0, 1, stop, nothing), Ending::kFinished);
      if (job.program.step.holds(session.coord(), 3)) {
        const at::Tensor bad =
            at::empty({session.workspace().layout(3).size}, at::kFloat).fill_(0.01);
        bad.mutable_data_ptr<float>()[bad.numel() / 2] = std::numeric_limits<float>::quiet_NaN();
        session.workspace().load_state(3, StateRole::kParameter, bad);
      }
      const std::string before = state_of(session, job);
      int steps = 0;
      StepReport last;
      const Ending ending =
          train_steps(session, 1, 5, stop, [&](std::int64_t, const StepReport& report) {
            ++steps;
            last = report;
          });
      EXPECT_EQ(ending, Ending::kDiverged) << layout << ", rank " << rank;
      EXPECT_EQ(steps, 1);
      EXPECT_FALSE(last.updated);
      EXPECT_FALSE(std::isfinite(last.grad_norm) && std::isfinite(last.loss));
      EXPECT_TRUE(state_of(session, job) == before) << layout << ", rank " << rank;
      EXPECT_EQ(session.workspace().updates(), 1);
    });
  }
}

// A learning rate that no number survives.
TEST(Training, DivergesAtTheSameStepOnEveryRank) {
  spec::Spec spec = tiny_spec(false, DType::kF32);
  spec.train.lr.peak = 1e30;
  const data::MockTokens tokens(1, spec.model.vocab, false);
  const Job job = job_of(spec, "pp2 dp2 zero3 m2");
  std::mutex mutex;
  std::vector<std::int64_t> ends;
  on_every_rank(job, tokens, [&](comm::World&, Session& session) {
    const std::atomic<bool> stop = false;
    std::string before = state_of(session, job);
    std::int64_t at = -1;
    const Ending ending =
        train_steps(session, 0, 20, stop, [&](std::int64_t step, const StepReport& report) {
          const std::string after = state_of(session, job);
          EXPECT_EQ(after == before, !report.updated) << "step " << step;
          before = after;
          at = step;
        });
    EXPECT_EQ(ending, Ending::kDiverged);
    const std::lock_guard lock(mutex);
    ends.push_back(at);
  });
  EXPECT_EQ(ends, std::vector<std::int64_t>(4, ends[0]));
  EXPECT_GT(ends[0], 0);
}

// One rank brings a loss that is no number, in the given steps. Skipped steps change nothing and
// use their samples up: the run then goes on as if they had not been there.
std::vector<StepReport> with_bad_steps(spec::Spec spec, const std::set<int>& bad, Ending expected) {
  spec.train.on_nonfinite = spec::OnNonfinite::kSkip;
  const data::MockTokens tokens(1, spec.model.vocab, false);
  const Job job = job_of(spec, "pp2 dp2 zero2 m2");
  std::vector<StepReport> reports;
  comm::run_local(job.mesh.world(), [&](comm::World& world) {
    int step = 0;
    const WorkspaceWrap spoil = [&](exec::Workspace& inner, Rank rank) {
      Hooks hooks;
      hooks.sums = [&, rank](exec::StepSums& sums, exec::Workspace&) {
        if (rank == Rank{1} && bad.contains(step))
          sums.loss.add(std::numeric_limits<double>::quiet_NaN());
      };
      return std::make_unique<HookedWorkspace>(inner, std::move(hooks));
    };
    Session session(job, world, "", tokens, Seconds{60}, spoil);
    std::string before = state_of(session, job);
    const std::atomic<bool> stop = false;
    const Ending ending =
        train_steps(session, 0, 15, stop, [&](std::int64_t at, const StepReport& report) {
          EXPECT_EQ(report.updated, !bad.contains(static_cast<int>(at)));
          EXPECT_EQ(state_of(session, job) == before, !report.updated) << "step " << at;
          before = state_of(session, job);
          if (world.rank() == Rank{0}) reports.push_back(report);
          ++step;
        });
    EXPECT_EQ(ending, expected);
    const auto taken = expected == Ending::kFinished ? 15 : 13;
    EXPECT_EQ(session.workspace().updates(), taken - static_cast<std::int64_t>(bad.size()));
  });
  return reports;
}

TEST(Training, SkipsStepsThatAreNotFiniteButNotForEver) {
  spec::Spec spec = tiny_spec(true, DType::kF32);
  spec.train.steps = 15;
  EXPECT_EQ(with_bad_steps(spec, {1, 2, 7}, Ending::kFinished).size(), 15u);
  std::set<int> ten, eleven;
  for (int step = 2; step < 2 + kMostSkipped; ++step) ten.insert(step);
  eleven = ten;
  eleven.insert(2 + kMostSkipped);
  EXPECT_EQ(with_bad_steps(spec, ten, Ending::kFinished).size(), 15u);
  EXPECT_EQ(with_bad_steps(spec, eleven, Ending::kDiverged).size(), 13u);
}

TEST(Training, OneRankAskedToStopStopsAllAfterTheSameStep) {
  const spec::Spec spec = tiny_spec(true, DType::kF32);
  const data::MockTokens tokens(1, spec.model.vocab, false);
  const Job job = job_of(spec, "tp2 pp2 dp2 zero1 m2");
  for (int asked = 0; asked < 8; ++asked)
    on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
      const int rank = world.rank().value;
      std::atomic<bool> stop = false;
      std::int64_t last = -1;
      const Ending ending =
          train_steps(session, 0, 9, stop, [&](std::int64_t step, const StepReport&) {
            last = step;
            if (rank == asked && step == 1) stop = true;
          });
      EXPECT_EQ(ending, Ending::kStopped) << "rank " << rank;
      EXPECT_EQ(last, 2) << "rank " << rank << ", asked " << asked;
    });
}

// Evaluation of the state a training step starts from: the loss of that step, bit for bit, with the
// bytes that were predicted.
TEST(Training, EvaluationIsTheLossBeforeTheUpdate) {
  const spec::Spec spec = tiny_spec(true, DType::kF32);
  const data::MockTokens tokens(1, spec.model.vocab, true);
  for (const char* layout : kLayouts) {
    const Job job = job_of(spec, layout);
    const std::array<verify::StepOrder, 2> orders = {{{0, nullptr}, {1, nullptr}}};
    const std::vector<verify::StepImage> trained =
        verify::run_trial(job, tokens, orders, Seconds{60}).images;
    Job evaluation = job;
    evaluation.program = program::lower_forward_only(job.program.step).value();
    on_every_rank(evaluation, tokens, [&](comm::World& world, Session& session) {
      verify::RankRecord record{world.rank(), {}};
      for (int step = 0; step < 2; ++step) {
        for (int unit = 0; unit < job.model.num_units() && step == 1; ++unit)
          if (job.program.step.holds(session.coord(), unit))
            session.workspace().load_state(
                unit, StateRole::kParameter,
                trained[0].at(job.model, unit, verify::Role::kParameter, session.place().tensor));
        const std::string before = state_of(session, job);
        verify::RankStep measured = measured_step(world, session, step);
        EXPECT_EQ(measured.report.loss, trained[static_cast<std::size_t>(step)].loss) << layout;
        EXPECT_FALSE(measured.report.updated);
        EXPECT_TRUE(state_of(session, job) == before) << layout;
        record.steps.push_back(std::move(measured));
      }
      const verify::PredictionCheck check = verify::check_predictions(evaluation, record);
      EXPECT_EQ(check.mismatch, "") << layout;
      EXPECT_LE(check.peak_error(), 0.02) << layout;
    });
  }
}

// Rank 1 is asked to stop while it draws weights, rank 0 has drawn: it does not report a death.
TEST(Run, ARankThatStopsBeforeTheFirstStepHasNotFailed) {
  static thread_local bool draws_long = false;
  const spec::Spec spec = tiny_spec(false, DType::kF32);
  const data::MockTokens text(1, spec.model.vocab, true);
  const RunData data{&text, nullptr, "made-up"};
  for (const bool asked : {true, false}) {
    const std::atomic<bool> stop = asked;
    Job job = job_of(spec, "dp2 zero1");
    job.workspace.drawing.between = [](std::int64_t) {
      if (draws_long) throw WorldError({Code::kInterrupted, "asked to stop", ""});
    };
    std::optional<Code> first;
    const auto rank = [&](comm::World& world) {
      draws_long = world.rank() == Rank{1};
      try {
        train(job, world, data, {}, stop);
      } catch (const WorldError& error) {
        if (world.rank() == Rank{0}) first = error.error().code;
        throw;
      }
    };
    EXPECT_THROW(comm::run_local(2, rank), WorldError);
    ASSERT_TRUE(first);
    EXPECT_EQ(*first == Code::kInterrupted, asked) << to_text(*first);
  }
}

// What a user's own program does: save, end, resume, evaluate, with the bits of the undisturbed
// run.
TEST(Run, SavesAndResumesWithoutTheCommandLine) {
  spec::Spec spec = tiny_spec(false, DType::kF32);
  spec.train.eval_interval = 2, spec.train.eval_samples = 4;
  const data::MockTokens text(1, spec.model.vocab, true), validation(2, spec.model.vocab, true);
  const RunData data{&text, &validation, "made-up"};
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / join_parts("run-", ::getpid());
  struct Watch final : RunObserver {
    void begins(const Progress& done, bool continues) override {
      told += join_parts(continues ? "goes on " : "begins ", done.step, "\n");
    }
    void step(std::int64_t step, const StepReport&, std::optional<std::uint64_t> digest) override {
      told += join_parts(step, " ", to_hex(digest.value()), "\n");
    }
    void evaluation(std::int64_t step, const EvalReport& report) override {
      told += join_parts(step, strf(" %a\n", report.loss));
    }
    void saved(const SaveEnding& ending) override {
      told += join_parts("saved ", ending.step, ending.path.ok() ? "\n" : " not\n");
    }
    std::string told;
  };
  const auto train_to = [&](std::int64_t steps, const RunOptions& options) {
    spec.train.steps = steps;
    Job job = job_of(spec, "dp2 zero1");
    std::atomic<std::int64_t> drawn = 0;
    job.workspace.drawing.between = [&](std::int64_t elements) { drawn += elements; };
    Watch watch;
    RunMetrics metrics(job, {.directory = folder, .resumes = true});
    comm::run_local(2, [&](comm::World& world) {
      std::vector<RunObserver*> observers;
      if (world.rank() == Rank{0}) observers = {&watch};
      if (world.rank() == Rank{0} && !options.save.empty()) observers.push_back(&metrics);
      const RunEnding end = train(job, world, data, options, false, observers);
      EXPECT_EQ(end.ending, Ending::kFinished);
      EXPECT_FALSE(end.refused || end.unsaved);
    });
    EXPECT_EQ(drawn > 0, watch.told.starts_with("begins 0\n")) << "drawn without need: " << drawn;
    return watch.told;
  };
  const std::string whole = train_to(4, {.digests = true});
  RunOptions options{.save = folder, .start = Start::kResumeOrNew, .digests = true};
  std::string parts = train_to(2, options);
  parts += train_to(4, options);
  EXPECT_EQ(train_to(4, options), "") << "nothing is left to do";
  for (const char* between : {"saved 2\ngoes on 2\n", "saved 4\n"}) {
    const std::size_t at = parts.find(between);
    ASSERT_NE(at, std::string::npos) << parts;
    parts.erase(at, std::string(between).size());
  }
  EXPECT_EQ(parts, whole);
  std::ifstream file(metrics_path(folder));
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) EXPECT_TRUE(line.ends_with('}'));
  EXPECT_EQ(lines, 12) << "start, resume, 4 steps, 2 evaluations, 2 saves, 2 ends";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::train
