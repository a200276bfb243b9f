#include "lockstep/verify/verify.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "lockstep/data/mock_tokens.h"
#include "tests/train/families.h"
#include "tests/train/tiny.h"

namespace lockstep::verify {
namespace {

Verifier verifier_of(DType dtype) {
  auto verifier = Verifier::create(train::tiny_spec(/*tied=*/true, dtype), 2);
  EXPECT_TRUE(verifier.ok()) << verifier.error().message;
  return *std::move(verifier);
}

Verdict verdict_on(Verifier& verifier, const char* layout) {
  const auto verdict = verifier.check(*spec::parse_layout(layout));
  EXPECT_TRUE(verdict.ok()) << layout << ": " << verdict.error().message;
  return *verdict;
}

// More layouts of each by command: `lockstep verify examples/gpt2.toml --layouts pairs`.
TEST(Verify, FamiliesTrainAsOnOneRank) {
  for (const auto& spec : train::family_specs()) {
    auto verifier = Verifier::create(spec, 2);
    ASSERT_TRUE(verifier.ok()) << verifier.error().message;
    for (const char* layout :
         {"pp2 dp2 zero1 m4 step recompute=full", "pp2 dp2 zero3 m4 mb recompute=selective",
          "dp2x2 zero2 m2 step", "tp2 pp2 dp1 zero3 m4 step", "tp2 dp2 zero1 m2 step nosp",
          // Two key-value heads and a vocabulary of 98 among four ranks.
          "tp4 dp2 zero2 m2 step", "tp4 dp1 zero0 m4 step nosp recompute=full",
          "tp2 cp2 dp1 zero1 m2 step"})
      EXPECT_EQ(verdict_on(*verifier, train::name_for(spec, layout).c_str()).failure, "")
          << spec.model.name << ", " << layout;
  }
}

// More layouts by command: `lockstep verify examples/mixtral.toml --layouts pairs`.
TEST(Verify, RanksThatShareExpertsTrainAsOne) {
  for (spec::Spec spec :
       {train::mixtral_spec(), train::olmoe_spec(), train::qwen2_moe_spec(), train::dots1_spec()}) {
    spec.model.moe.experts = 8;
    auto verifier = Verifier::create(spec, 2);
    ASSERT_TRUE(verifier.ok()) << verifier.error().message;
    for (const char* layout :
         {"dp2 ep2 zero0 m2 step", "dp4 ep2 zero3 m2 step recompute=selective",
          "dp4 ep4 zero1 m1 mb", "dp2x2 ep2 zero2 m2 step", "dp8 ep8 zero1 m1 step",
          "pp2 dp2 ep2 zero3 m4 mb recompute=full", "pp2 dp2 ep2 zero1 zb-h1 m4 step",
          "cp2 dp1 ep2 zero0 m2 step", "cp2 dp2 ep4 zero3 m2 step",
          "tp2 dp2 ep2 etp2 zero2 m2 step", "tp2 dp4 ep2 etp2 nosp zero3 m2 step",
          "tp2 cp2 pp2 dp1 ep2 etp2 zero1 m4 step recompute=full", "tp2 dp1 zero0 m2 step",
          "tp2 dp2 ep4 zero3 m2 step recompute=selective", "tp2 dp2x1 ep2 zero1 m2 step",
          "tp2 cp2 pp2 dp1 ep4 zero2 m4 step recompute=full", "tp4 dp2 ep4 etp2 zero1 m1 step",
          "tp4 dp1 etp2 zero0 m2 step"})
      EXPECT_EQ(verdict_on(*verifier, layout).failure, "") << spec.model.name << ", " << layout;
  }
}

// Experts, and with them ranks, that meet every token or none.
TEST(Verify, SteeredRoutersTrainAsOnOneRank) {
  spec::Spec spec = train::dots1_spec();
  spec.model.layers = 2;
  const std::int64_t experts = spec.model.moe.experts;
  for (const model::Routing routing : {model::Routing::kTies, model::Routing::kLast,
                                       model::Routing::kHalf, model::Routing::kRandom}) {
    auto verifier = Verifier::create(spec, 2, {.routing = routing});
    ASSERT_TRUE(verifier.ok()) << verifier.error().message;
    const std::vector<std::int64_t>& met = verifier->reference()[1].expert_tokens;
    const std::int64_t all = spec.batch.global_batch * spec.batch.seq;
    for (std::size_t i = 0; i < met.size(); ++i) {
      const auto expert = static_cast<std::int64_t>(i) % experts;
      const bool meets_all = routing == model::Routing::kTies   ? expert < 2
                             : routing == model::Routing::kLast ? expert >= experts - 2
                                                                : met[i] == all;
      const bool may = routing == model::Routing::kHalf ? expert < experts / 2 : meets_all;
      EXPECT_TRUE(meets_all ? met[i] == all : may || met[i] == 0)
          << to_text(routing) << ": expert " << i << " met " << met[i];
    }
    for (const char* layout :
         {"dp8 ep8 zero1 m1", "pp2 dp2 ep2 zero3 m4 mb recompute=full", "cp2 dp2 ep4 zero3 m2",
          "tp2 dp2 ep2 etp2 zero2 m2", "tp2 dp2 ep4 zero1 m2"})
      EXPECT_EQ(verdict_on(*verifier, layout).failure, "") << to_text(routing) << ", " << layout;
  }
}

// The reference takes one sequence at a time, so a layout that does so on one copy shares its
// class.
TEST(Verify, ComparesBitsWithOneRankAndWithinAClass) {
  Verifier verifier = verifier_of(DType::kF64);
  const Verdict pipeline = verdict_on(verifier, "pp2 dp1 zero0 gpipe m16 step recompute=full");
  EXPECT_EQ(pipeline.failure, "");
  EXPECT_EQ(pipeline.digest, verifier.reference().back().digest());
  const Verdict flat = verdict_on(verifier, "dp4 zero3 m2 step");
  const Verdict hybrid = verdict_on(verifier, "dp2x2 zero1 m2 step recompute=selective");
  EXPECT_EQ(flat.failure + hybrid.failure, "");
  EXPECT_EQ(flat.bits_class, hybrid.bits_class);
  EXPECT_EQ(flat.digest, hybrid.digest);
  EXPECT_NE(flat.digest, pipeline.digest);
}

// A layout whose class is known is not measured anew; what is said of it must be what would have
// been.
TEST(Verify, SaysOfALaterLayoutWhatItWouldSayOfAFirst) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    Verifier verifier = verifier_of(dtype);
    EXPECT_EQ(verdict_on(verifier, "dp2 zero0 m2 step").failure, "");
    const Verdict later = verdict_on(verifier, "pp2 dp2 zero3 m2 step recompute=full");
    Verifier other = verifier_of(dtype);
    const Verdict first = verdict_on(other, "pp2 dp2 zero3 m2 step recompute=full");
    EXPECT_EQ(first.failure + later.failure, "");
    EXPECT_EQ(first.run, later.run);
    EXPECT_EQ(first.digest, later.digest);
    EXPECT_EQ(first.step_error, later.step_error);
    EXPECT_EQ(first.run_error, later.run_error);
    EXPECT_EQ(first.where, later.where);
    EXPECT_EQ(first.peak_bytes, later.peak_bytes);
    EXPECT_EQ(first.ranks, later.ranks);
  }
}

// A matrix product over sixteen sequences rounds more than sixteen products added up, so the bound
// of microbatches of one would refuse microbatches of sixteen.
TEST(Verify, HoldsF32ToTheRoundingOfItsMicrobatch) {
  Verifier verifier = verifier_of(DType::kF32);
  const Verdict large = verdict_on(verifier, "dp1 zero0 m1 step");
  const Verdict small = verdict_on(verifier, "dp4 zero3 m4 mb");
  EXPECT_EQ(large.failure + small.failure, "");
  EXPECT_DOUBLE_EQ(large.step_error, large.bounds.step / 2);  // it is one rank itself
  EXPECT_LT(small.bounds.step, large.bounds.step);
}

// Tensor ranks cut the sums of matrix products: wider bounds, classes of their own, and in f32 the
// same bound as one rank.
TEST(Verify, HoldsTensorRanksToTheirOwnBoundsAndBits) {
  Verifier exact = verifier_of(DType::kF64);
  const Verdict fused = verdict_on(exact, "tp2 dp1 zero0 m4 step");
  const Verdict piped = verdict_on(exact, "tp2 pp2 dp1 zero3 m4 step recompute=full");
  const Verdict plain = verdict_on(exact, "tp2 dp1 zero0 m4 step nosp");
  EXPECT_EQ(fused.failure + piped.failure + plain.failure, "");
  EXPECT_EQ(fused.bounds.step, 1e-10);
  EXPECT_EQ(fused.bounds.run, 1e-8);
  EXPECT_EQ(fused.bits_class, "tp2 dp1 microbatch 4 step");
  EXPECT_EQ(plain.bits_class, "tp2 nosp dp1 microbatch 4 step");
  EXPECT_EQ(fused.digest, piped.digest);
  EXPECT_NE(fused.digest, plain.digest);
  Verifier single = verifier_of(DType::kF32);
  for (const char* layout : {"tp2 dp2 zero1 m2 step", "tp2 pp2 dp2 zero3 m2 mb nosp"})
    EXPECT_EQ(verdict_on(single, layout).failure, "") << layout;
}

// Pairs by command: `lockstep verify --ranks 8 --labels one`.
TEST(Verify, LayoutsOfSparseLabels) {
  for (const data::LabelMask labels : {data::LabelMask::kOne, data::LabelMask::kSparse,
                                       data::LabelMask::kCuts, data::LabelMask::kButLast}) {
    auto verifier =
        Verifier::create(train::tiny_spec(/*tied=*/true, DType::kF64), 2, {.labels = labels});
    ASSERT_TRUE(verifier.ok()) << verifier.error().message;
    for (const char* layout :
         {"cp4 dp1 zero0 m4 step", "cp2 pp2 dp2 zero3 m4 mb cp_comm_type=gather recompute=full",
          "tp2 cp2 dp1 zero1 m2 step cp_comm_type=ulysses"})
      EXPECT_EQ(verdict_on(*verifier, layout).failure, "") << to_text(labels) << ", " << layout;
  }
}

TEST(Verify, NamesTheFirstDifferingTensorAndItsStep) {
  Verifier verifier = verifier_of(DType::kF64);
  const spec::Layout layout = *spec::parse_layout("dp2 zero1 m2");
  const data::MockTokens other(4321, 98, true);
  const Verdict wrong = verifier.check_fault(layout, {.source = &other}, Seconds{20});
  EXPECT_EQ(wrong.failure_kind, FailureKind::kNumbers);
  EXPECT_TRUE(wrong.failure.starts_with("gradient of ")) << wrong.failure;
  EXPECT_NE(wrong.failure.find(" in step 1 (bound 1e-12)"), std::string::npos) << wrong.failure;
  EXPECT_EQ(verifier.check(layout)->failure, "");
}

TEST(Verify, FailsALayoutWhoseOperationsTakeLongerThanTheyMay) {
  auto verifier = Verifier::create(train::tiny_spec(/*tied=*/true, DType::kF64), 2,
                                   {.op_deadline = Seconds{1e-9}});
  ASSERT_TRUE(verifier.ok());
  const Verdict verdict = verdict_on(*verifier, "dp2 zero1 m2");
  EXPECT_EQ(verdict.failure_kind, FailureKind::kCommunication) << verdict.failure;
}

// Ranks compare digests before the first step; a model that computes something else must show.
TEST(Job, HasAnotherDigestForWhateverTrainsOtherwise) {
  const spec::Spec spec = train::tiny_spec(false, DType::kF32);
  const std::vector<void (*)(spec::Spec&)> changes = {
      [](spec::Spec& s) { s.model.rope_theta = 5e5; },
      [](spec::Spec& s) { s.model.rope_scaling = {8, 1, 4, 16}; },
      [](spec::Spec& s) { s.model.norm_eps = 1e-6; },
      [](spec::Spec& s) { s.model.tied = true; },
      [](spec::Spec& s) { s.model.qkv_bias = true; },
      [](spec::Spec& s) { s.model.qk_norm = model::QkNorm::kPerHead; },
      [](spec::Spec& s) { s.model = train::gpt2_spec().model; },
      [](spec::Spec& s) { s.train.seed = 1; },
      [](spec::Spec& s) { s.train.clip = 0; },
      [](spec::Spec& s) { s.train.weight_decay = 0; },
      [](spec::Spec& s) { s.batch.microbatch = 2; },
      [](spec::Spec& s) { s.layout.zero = 3; },
      [](spec::Spec& s) { s.layout.recompute = {model::kSelective}; }};
  std::set<Hash128> seen = {train::make_job(spec)->digest()};
  EXPECT_TRUE(seen.contains(train::make_job(spec)->digest()));
  for (auto change : changes) {
    spec::Spec changed = spec;
    change(changed);
    EXPECT_TRUE(seen.insert(train::make_job(changed)->digest()).second);
  }
}

TEST(Job, HasAnotherDigestForOtherSettingsOfRouters) {
  const spec::Spec spec = train::mixtral_spec();
  std::set<Hash128> seen = {train::make_job(spec)->digest()};
  for (double spec::Train::* coeff :
       {&spec::Train::moe_aux_loss_coeff, &spec::Train::moe_z_loss_coeff,
        &spec::Train::moe_bias_update_rate})
    for (const double value : {0.0, 0.5}) {
      spec::Spec changed = spec;
      changed.train.*coeff = value;
      EXPECT_TRUE(seen.insert(train::make_job(changed)->digest()).second);
    }
}

TEST(Verify, RefusesWhatCanNotRun) {
  Verifier verifier = verifier_of(DType::kF64);
  EXPECT_EQ(verifier.check(*spec::parse_layout("cp8 cp_comm_type=ulysses")).error().code,
            Code::kDoesNotDivide);
  EXPECT_EQ(verifier.check(*spec::parse_layout("tp3")).error().code, Code::kDoesNotDivide);
}

}  // namespace
}  // namespace lockstep::verify
