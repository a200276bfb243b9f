// What a job says about its steps: which parameters decay, and how a batch grows.
#include "lockstep/train/job.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "lockstep/data/mock_tokens.h"
#include "lockstep/verify/check_predictions.h"
#include "tests/train/sessions.h"
#include "tests/train/small.h"

namespace lockstep::train {
namespace {

verify::StepImage after_one_step(bool tied, double weight_decay, bool decay_embeddings) {
  spec::Spec spec = small_spec(tied);
  spec.train.weight_decay = weight_decay;
  spec.train.decay_embeddings = decay_embeddings;
  const Job job = job_of(spec, "dp2 zero3 m2");
  const verify::StepOrder order;
  const data::MockTokens tokens(1, spec.model.vocab, true);
  return verify::run_trial(job, tokens, {&order, 1}, Seconds{60}).images.at(0);
}

// The first step's gradients know no decay, so each unit is as in a run where all decay or none
// does.
TEST(Groups, EmbeddingsDecayOrNotAndNothingElseChanges) {
  for (const bool tied : {false, true}) {
    const verify::StepImage all = after_one_step(tied, 0.3, true),
                            none = after_one_step(tied, 0, true);
    const verify::StepImage others = after_one_step(tied, 0.3, false);
    const int head = all.segments.rbegin()->first;
    for (int unit = 0; unit <= head; ++unit) {
      const bool is_embedding = unit == 0 || (tied && unit == head);
      const auto same = [&](const verify::StepImage& as) {
        return at::equal(others.at(unit, verify::Role::kParameter),
                         as.at(unit, verify::Role::kParameter));
      };
      EXPECT_EQ(same(none), is_embedding) << unit;
      EXPECT_EQ(same(all), !is_embedding) << unit;
    }
  }
}

spec::Spec growing() {
  spec::Spec spec = small_spec(true);
  spec.batch.global_batch = 16;
  spec.batch.ramp = {4, 4, 24};
  return spec;
}

// Sequences, loss and norm of every step; memory and traffic of every rank must be as predicted.
std::string grow(const std::string& layout, int steps) {
  spec::Spec spec = growing();
  spec.layout = spec::parse_layout(layout).value();
  const Job job = make_job(spec).value();
  const data::MockTokens tokens(1, spec.model.vocab, true);
  std::string text;
  std::mutex mutex;
  on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
    for (int step = 0; step < steps; ++step) {
      const verify::RankStep measured = measured_step(world, session, step);
      const StepReport& report = measured.report;
      const Job sized = with_batch(job, report.sequences);
      const std::lock_guard lock(mutex);
      EXPECT_EQ(verify::check_predictions(sized, {world.rank(), {measured}}).mismatch, "") << step;
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
  EXPECT_EQ(grow("pp2 dp1 zero1 gpipe recompute=full", 6), alone);
}

// The first steps are those of a job that never grows.
TEST(Ramp, BeginsAsTheSmallBatch) {
  spec::Spec small = growing();
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
  spec::Spec spec = growing();
  spec.layout = spec::parse_layout("dp8 zero1").value();
  const auto made = make_job(spec);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("ramp_start = 4"), std::string::npos) << made.error().message;
  EXPECT_NE(make_job(growing()).value().digest(), make_job([] {
                                                    spec::Spec plain = growing();
                                                    plain.batch.ramp = {};
                                                    return plain;
                                                  }())
                                                      .value()
                                                      .digest());
}

TEST(Job, KeysThatChangeItHaveAnotherDigest) {
  const spec::Spec plain = small_spec(true);
  const Hash128 before = make_job(plain).value().digest();
  for (const auto change : {+[](spec::Train& train) { train.beta1 = 0.8; },
                            +[](spec::Train& train) { train.beta2 = 0.99; },
                            +[](spec::Train& train) { train.eps = 1e-7; },
                            +[](spec::Train& train) { train.head_chunk = 3; },
                            +[](spec::Train& train) { train.threads = 2; }}) {
    spec::Spec spec = plain;
    change(spec.train);
    EXPECT_NE(make_job(spec).value().digest(), before);
  }
}

// AdamW by its formula, in f64, against the moments and weights after one step.
TEST(Job, BetasAndEpsReachTheOptimizer) {
  spec::Spec spec = small_spec(false);
  spec.train.beta1 = 0.7;
  spec.train.beta2 = 0.6;
  spec.train.eps = 1e-3;
  spec.train.clip = 0;
  spec.train.weight_decay = 0;
  const Job job = job_of(spec, "dp2 zero1 m2");
  const data::MockTokens tokens(1, spec.model.vocab, true);
  const verify::StepOrder orders[] = {{0, nullptr}, {1, nullptr}};
  const auto images = verify::run_trial(job, tokens, orders, Seconds{60}).images;
  for (int unit = 0; unit < job.model.num_units(); ++unit) {
    const at::Tensor g0 = images[0].at(unit, verify::Role::kGradient),
                     g1 = images[1].at(unit, verify::Role::kGradient);
    const at::Tensor m = g0.mul(0.3 * 0.7).add(g1.mul(0.3)),
                     v = g0.square().mul(0.4 * 0.6).add(g1.square().mul(0.4));
    const double lr = spec.train.lr.at(1, spec.train.steps);
    const at::Tensor moved = m.div(1 - 0.49).div(v.div(1 - 0.36).sqrt().add(1e-3)).mul(-lr);
    const auto near = [&](const at::Tensor& got, const at::Tensor& wanted) {
      return got.sub(wanted).abs().max().item<double>() <= 1e-12;
    };
    EXPECT_TRUE(near(images[1].at(unit, verify::Role::kFirstMoment), m)) << unit;
    EXPECT_TRUE(near(images[1].at(unit, verify::Role::kSecondMoment), v)) << unit;
    EXPECT_TRUE(near(images[1]
                         .at(unit, verify::Role::kParameter)
                         .sub(images[0].at(unit, verify::Role::kParameter)),
                     moved))
        << unit;
  }
}

// What a product of bf16 takes besides its result, of any that tokens and widths of the job make.
std::int64_t most_scratch(const Job& job) {
  const model::ModelConfig& c = job.spec.model;
  const std::int64_t tp = job.spec.layout.degrees.tp;
  const std::int64_t q = c.heads * c.head_dim / tp, k = c.kv_heads * c.head_dim / tp;
  const std::int64_t sides[] = {job.spec.batch.microbatch * job.spec.batch.seq,
                                c.hidden,
                                q,
                                q + 2 * k,
                                c.ffn / tp,
                                2 * c.ffn / tp,
                                c.vocab / tp};
  std::int64_t most = 0;
  for (const std::int64_t m : sides)
    for (const std::int64_t inner : sides)
      for (const std::int64_t n : sides)
        for (const bool by_columns : {false, true}) {
          const at::Tensor a = at::full({m, inner}, 1.0, at::kBFloat16);
          const at::Tensor b = by_columns ? at::full({n, inner}, 1.0, at::kBFloat16).t()
                                          : at::full({inner, n}, 1.0, at::kBFloat16);
          at::Tensor out = at::full({m, n}, 1.0, at::kBFloat16);
          tensor::MemoryAccount account;
          const tensor::ChargeTo charge(account);
          at::mm_out(out, a, b);
          most = std::max(most, account.peak());
        }
  return most;
}

// Memory and traffic to the byte, whatever the chunk and the threads; and what both do to the
// numbers.
TEST(Job, HeadChunkAndThreadsAreAsPredicted) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16})
    for (const auto family : {model::Family::kLlama, model::Family::kGpt2})
      for (const auto& [chunk, threads] : {std::pair{0, 1}, {5, 1}, {1, 2}, {0, 3}}) {
        spec::Spec spec = small_spec(family == model::Family::kGpt2);
        spec.train.dtype = dtype;
        spec.train.head_chunk = chunk;
        spec.train.threads = threads;
        if (family == model::Family::kGpt2) {
          spec.model.family = family;
          spec.model.norm = model::NormKind::kLayerNorm;
          spec.model.kv_heads = spec.model.heads;
          spec.model.qkv_bias = spec.model.linear_bias = true;
        }
        for (const char* layout : {"dp1 zero0 m2", "tp2 dp1 zero0 m2"}) {
          const Job job = job_of(spec, layout);
          const data::MockTokens tokens(1, spec.model.vocab, true);
          on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
            verify::RankRecord record{world.rank(), {measured_step(world, session, 0)}};
            const verify::PredictionCheck check = verify::check_predictions(job, record);
            EXPECT_EQ(check.mismatch, "");
            // oneDNN's own scratch in bf16 (parts/kernels.h) grows with the threads; one thread's
            // is at most what the job's widest product takes alone.
            const std::int64_t scratch = dtype == DType::kBF16 ? most_scratch(job) : 0;
            EXPECT_GE(check.peak_bytes, check.predicted_peak);
            EXPECT_TRUE(check.peak_bytes <= check.predicted_peak + scratch ||
                        (dtype == DType::kBF16 && threads > 1))
                << to_text(dtype) << " chunk " << chunk << " threads " << threads << " " << layout
                << ": " << check.peak_bytes << " and " << check.predicted_peak << " + " << scratch;
          });
        }
      }
}

}  // namespace
}  // namespace lockstep::train
