#include "lockstep/train/session.h"

#include <gtest/gtest.h>

#include <latch>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "lockstep/data/mock_tokens.h"
#include "lockstep/verify/check_predictions.h"
#include "tests/train/sessions.h"
#include "tests/train/tiny.h"

namespace lockstep::train {
namespace {

// Remembers what was read.
class Watched final : public data::TokenSource {
 public:
  explicit Watched(const data::TokenSource& inner) : inner_(inner) {}
  void read(std::int64_t sample, std::span<std::int64_t> tokens,
            std::span<std::int64_t> labels) const override {
    inner_.read(sample, tokens, labels);
    const std::lock_guard lock(mutex_);
    samples_.insert(sample);
    ++reads_;
  }
  std::int64_t valid_labels(std::int64_t sample, std::int64_t seq) const override {
    return inner_.valid_labels(sample, seq);
  }
  const std::set<std::int64_t>& samples() const { return samples_; }
  std::int64_t reads() const { return reads_; }

 private:
  const data::TokenSource& inner_;
  mutable std::mutex mutex_;
  mutable std::set<std::int64_t> samples_;
  mutable std::int64_t reads_ = 0;
};

// What rank 0 of a run saw: training losses, validation losses before the first step and after
// each, and digests of the state.
struct Seen {
  std::vector<double> losses, validation;
  std::vector<std::uint64_t> digests;
};

spec::Spec evaluated_spec(bool tied, std::int64_t interval) {
  spec::Spec spec = tiny_spec(tied, DType::kF32);
  spec.train.eval_interval = interval;
  spec.train.eval_samples = 24;
  return spec;
}

// One evaluation with all that predictions are about.
verify::RankStep measured_evaluation(comm::World& world, Session& session,
                                     const data::TokenSource& validation, double& loss) {
  verify::RankStep measured;
  world.ledger().clear();
  const EvalReport report =
      session.evaluate(validation, [&](int) { measured.live.push_back(session.memory().live()); });
  measured.ledger = world.ledger().entries();
  measured.report.peak_bytes = report.peak_bytes;
  loss = report.loss;
  return measured;
}

Seen trained(const spec::Spec& spec, const std::string& layout) {
  const data::MockTokens tokens(1, spec.model.vocab, true), others(2, spec.model.vocab, true);
  const Watched validation(others);
  const Job job = job_of(spec, layout);
  Seen seen;
  on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
    verify::RankRecord record{world.rank(), {}};
    Seen own;
    for (int step = 0; step <= 3; ++step) {
      own.digests.push_back(session.state_digest());
      if (job.evaluation) {
        double loss = 0;
        record.steps.push_back(measured_evaluation(world, session, validation, loss));
        own.validation.push_back(loss);
        EXPECT_EQ(session.state_digest(), own.digests.back()) << layout;
      }
      if (step < 3) own.losses.push_back(session.step(step).loss);
    }
    if (job.evaluation) {
      const verify::PredictionCheck check = verify::check_predictions(as_evaluation(job), record);
      EXPECT_EQ(check.mismatch, "") << layout;
      EXPECT_EQ(check.peak_error(), 0) << layout;
    }
    if (world.rank() == Rank{0}) seen = own;
  });
  for (const std::int64_t sample : validation.samples()) EXPECT_LT(sample, spec.train.eval_samples);
  EXPECT_EQ(validation.samples().size(), job.evaluation ? 24u : 0u) << layout;
  return seen;
}

// Layouts that end in the same bits, in classes.
const std::map<std::string, std::vector<std::string>> kClasses = {
    {"dp1", {"dp1 zero0 m2", "pp2 dp1 zero0 m2 gpipe", "pp2 dp1 zero0 m2 zbv vpp2"}},
    {"dp2",
     {"dp2 zero0 m2 step", "dp2 zero1 m2", "pp2 dp2 zero2 m2 step", "dp2 zero3 m2 step",
      "pp2 dp2x1 zero3 m2 recompute=full step"}},
    {"cp2", {"cp2 dp1 zero0 m2", "cp2 dp1 zero3 m2 step", "cp2 pp2 dp1 zero1 m2 zbv vpp2 step"}},
    {"tp2", {"tp2 dp1 zero0 m2", "tp2 pp2 dp1 zero0 m2"}}};

// Evaluation looks and does not touch: the run around it stays the same, its loss is the same
// wherever the state is, and its bytes are those that were predicted.
TEST(Evaluation, IsTheSameInEveryLayoutAndChangesNothing) {
  std::set<double> before_training;
  for (const bool tied : {true, false})
    for (const auto& [name, layouts] : kClasses) {
      const Seen plain = trained(evaluated_spec(tied, 0), layouts[0]);
      const Seen first = trained(evaluated_spec(tied, 1), layouts[0]);
      EXPECT_EQ(first.losses, plain.losses) << name;
      EXPECT_EQ(first.digests, plain.digests) << name;
      EXPECT_LT(first.validation.back(), first.validation.front());
      if (name.starts_with("dp") && tied) before_training.insert(first.validation[0]);
      for (std::size_t i = 1; i < layouts.size(); ++i) {
        const Seen other = trained(evaluated_spec(tied, 1), layouts[i]);
        EXPECT_EQ(other.validation, first.validation) << layouts[i];
        EXPECT_EQ(other.digests, first.digests) << layouts[i];
        EXPECT_EQ(other.losses, first.losses) << layouts[i];
      }
    }
  EXPECT_EQ(before_training.size(), 1u) << "initial weights and samples know no data degree";
}

TEST(Session, ReadsASampleOnce) {
  const spec::Spec spec = tiny_spec(false, DType::kF32);
  const data::MockTokens tokens(1, spec.model.vocab, true);
  const Watched watched(tokens);
  const Job job = job_of(spec, "dp2 zero1 m2 step");
  on_every_rank(job, watched, [&](comm::World&, Session& session) {
    session.step(0);
    session.step(1);
  });
  EXPECT_EQ(watched.reads(), 2 * spec.batch.global_batch);
  EXPECT_EQ(std::ssize(watched.samples()), watched.reads());
}

// So that a report of a stall tells ops of the one from those of the other.
TEST(Evaluation, PositionsSayThatTheyAreInIt) {
  const Job job = job_of(evaluated_spec(false, 1), "dp1 zero0 m2");
  const data::MockTokens tokens(1, job.spec.model.vocab, true);
  on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
    const auto expect = [&](std::int64_t step, bool evaluates) {
      return [&world, step, evaluates](int) {
        const auto at = world.position().get();
        ASSERT_TRUE(at);
        EXPECT_EQ(at->step, step);
        EXPECT_EQ(at->evaluates, evaluates);
      };
    };
    for (const std::int64_t step : {0, 1}) {
      session.step(step, expect(step, false));
      session.evaluate(tokens, expect(step, true));
    }
  });
}

// Of two ranks the second stands still in F of unit 2, microbatch 1, with so many parts behind it:
// what the first tells.
std::string told_of_a_stall(const std::string& layout, int stands_behind) {
  const Job job = job_of(tiny_spec(true, DType::kF32), layout);
  const data::MockTokens tokens(1, job.spec.model.vocab, true);
  std::latch has_failed(1);
  std::string told;
  const auto run = [&](comm::World& world) {
    Job own = job;
    if (world.rank() == Rank{1})
      own.workspace.place = [&](const program::Op& op, int behind, bool waits) {
        if (op.unit == 2 && op.microbatch == 1 && behind == stands_behind && !waits)
          has_failed.wait();
      };
    Session session(own, world, "", tokens, Seconds{2});
    try {
      session.step(0);
    } catch (const comm::CommError& error) {
      if (world.rank() == Rank{0}) {
        told = error.what();
        has_failed.count_down();
      }
      throw;
    }
  };
  EXPECT_THROW(comm::run_local(2, run), comm::CommError);
  return told;
}

// Collectives of tensor and context ranks are inside of passes. One rank stands still behind the
// first of a forward pass, the other tells which it waits in.
TEST(Stalled, InsideAPassIsNamedWithItsPart) {
  std::string told = told_of_a_stall("tp2 dp1 zero1 m2 step", 3);
  EXPECT_NE(told.find("\n  rank 0 waits for rank 1 in the reduce_scatter of middle in F of unit 2, "
                      "microbatch 1, which it has not come to\n  rank 1 is at F of unit 2, "
                      "microbatch 1, behind the all_gather of attn_normed_gathered"),
            std::string::npos)
      << told;
  told = told_of_a_stall("cp2 dp1 zero1 m2 step", 8);
  EXPECT_NE(told.find("\n  rank 0 waits for rank 1 in the exchange of other_keys in F of unit 3, "
                      "microbatch 1, which it has not come to\n  rank 1 is at F of unit 2, "
                      "microbatch 1, behind the exchange of other_keys"),
            std::string::npos)
      << told;
}

}  // namespace
}  // namespace lockstep::train
