// What a job says about its steps: which parameters decay, and how a batch grows.
#include "lockstep/train/job.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "lockstep/data/mock_tokens.h"
#include "lockstep/train/predictions.h"
#include "tests/train/sessions.h"
#include "tests/train/small.h"

namespace lockstep::train {
namespace {

StepImage after_one_step(bool tied, double weight_decay, bool decay_embeddings) {
  plan::Spec spec = small_spec(tied);
  spec.train.weight_decay = weight_decay;
  spec.train.decay_embeddings = decay_embeddings;
  const Job job = job_of(spec, "dp2 zero3 m2");
  const StepOrder order;
  const data::MockTokens tokens(1, spec.model.vocab, true);
  return run_trial(job, tokens, {&order, 1}, Seconds{60}).images.at(0);
}

// The first step's gradients know no decay, so each unit is as in a run where all decay or none does.
TEST(Groups, EmbeddingsDecayOrNotAndNothingElseChanges) {
  for (const bool tied : {false, true}) {
    const StepImage all = after_one_step(tied, 0.3, true), none = after_one_step(tied, 0, true);
    const StepImage others = after_one_step(tied, 0.3, false);
    const int head = static_cast<int>(all.units.size()) - 1;
    for (int unit = 0; unit <= head; ++unit) {
      const bool is_embedding = unit == 0 || (tied && unit == head);
      const auto same = [&](const StepImage& as) {
        return at::equal(others.at(unit, Role::kParameter), as.at(unit, Role::kParameter));
      };
      EXPECT_EQ(same(none), is_embedding) << unit;
      EXPECT_EQ(same(all), !is_embedding) << unit;
    }
  }
}

plan::Spec growing() {
  plan::Spec spec = small_spec(true);
  spec.batch.global_batch = 16;
  spec.batch.ramp = {4, 4, 24};
  return spec;
}

// Sequences, loss and norm of every step; memory and traffic of every rank must be as predicted.
std::string grow(const std::string& layout, int steps) {
  plan::Spec spec = growing();
  spec.layout = plan::parse_layout(layout).value();
  const Job job = make_job(spec).value();
  const data::MockTokens tokens(1, spec.model.vocab, true);
  std::string text;
  std::mutex mutex;
  on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
    for (int step = 0; step < steps; ++step) {
      const RankStep measured = measured_step(world, session, step);
      const StepReport& report = measured.report;
      const Job sized = with_batch(job, report.sequences);
      const std::lock_guard lock(mutex);
      EXPECT_EQ(check_predictions(sized, {world.rank(), {measured}}).mismatch, "") << step;
      if (world.rank().value == 0)
        text +=
            strf("%ld %a %a\n", static_cast<long>(report.sequences), report.loss, report.grad_norm);
    }
  });
  return text;
}

TEST(Ramp, GrowsAlikeInEveryLayoutOfAClass) {
  const std::string alone = grow("dp1 zero0", 6);
  EXPECT_EQ(alone.substr(0, 2), "4 ");
  EXPECT_NE(alone.find("\n8 "), std::string::npos) << alone;
  EXPECT_NE(alone.find("\n12 "), std::string::npos) << alone;
  EXPECT_NE(alone.find("\n16 "), std::string::npos) << alone;
  EXPECT_EQ(grow("pp2 dp1 zero0 1f1b", 6), alone);
  EXPECT_EQ(grow("pp2 dp1 zero1 gpipe recompute=block", 6), alone);
}

// The first steps are those of a job that never grows.
TEST(Ramp, BeginsAsTheSmallBatch) {
  plan::Spec small = growing();
  small.batch.global_batch = 4;
  small.batch.ramp = {};
  small.layout.zero = 0;
  const Job job = make_job(small).value();
  const data::MockTokens tokens(1, small.model.vocab, true);
  std::string text;
  on_every_rank(job, tokens, [&](comm::World&, Session& session) {
    for (int step = 0; step < 2; ++step) {
      const StepReport report = session.step(step);
      text += strf("4 %a %a\n", report.loss, report.grad_norm);
    }
  });
  EXPECT_EQ(grow("dp1 zero0", 2), text);
}

TEST(Ramp, RefusesSizesThatTheLayoutCanNotCut) {
  plan::Spec spec = growing();
  spec.layout = plan::parse_layout("dp8 zero1").value();
  const auto made = make_job(spec);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("ramp_start = 4"), std::string::npos) << made.error().message;
  EXPECT_NE(make_job(growing()).value().digest(), make_job([] {
                                                    plan::Spec plain = growing();
                                                    plain.batch.ramp = {};
                                                    return plain;
                                                  }())
                                                      .value()
                                                      .digest());
}

}  // namespace
}  // namespace lockstep::train
