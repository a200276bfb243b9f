// What EqualsAutogradInDoublePrecision (block_test.cc) does not meet: equal scores, experts that no
// token is sent to, tokens that are all sent to the same.
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "tests/nn/oracle.h"
#include "tests/nn/unit_layouts.h"
#include "tests/nn/units.h"

namespace lockstep::nn {
namespace {

constexpr std::int64_t kMany = 5;  // experts, of which a token meets two

struct ExpertsRig {
  explicit ExpertsRig(at::ScalarType type)
      : tiny(Shape{}.as(Kin::kMixtral)),
        rope(tiny.config(), tiny.shape.seq, type, at::kCPU),
        block(tiny.config(), tiny.unit(kBlock), tiny.flat(kBlock), tiny.shape.batch, tiny.shape.seq,
              {}, rope),
        params(random_params(tiny, kBlock, type)),
        input(random("input", {tiny.shape.tokens(), tiny.shape.hidden}, type)) {
    of("moe.router.weight", params).zero_();  // every expert is as likely
  }

  at::Tensor of(const std::string& name, const at::Tensor& flat) const {
    for (const Named& part : parts(tiny, kBlock, flat))
      if (part.name == "blocks.{i}." + name) return part.values;
    ADD_FAILURE() << name;
    return flat;
  }
  at::Tensor expert(const std::string& name, std::int64_t e, const at::Tensor& flat) const {
    const at::Tensor all = of("moe.experts." + name + ".weight", flat);
    return all.narrow(0, e * all.numel() / kMany, all.numel() / kMany);
  }
  at::Tensor out() const { return block.forward(params, input); }
  at::Tensor grads() const {
    Kept stash, work;
    const at::Tensor out = block.forward(params, input, stash);
    at::Tensor made = at::full_like(params, kNan);
    block.backward(params, std::move(stash), out.clone(), made, /*is_first=*/true);
    return made;
  }

  Tiny tiny;
  Rope rope;
  Block block;
  at::Tensor params, input;
};

TEST(Experts, OfEqualScoresTheLowerIsTaken) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    ExpertsRig rig(type);
    const at::Tensor out = rig.out();
    for (std::int64_t e = 2; e < kMany; ++e) rig.expert("up", e, rig.params).mul_(3.0);
    EXPECT_TRUE(at::equal(rig.out(), out));
    rig.expert("up", 1, rig.params).mul_(3.0);
    EXPECT_FALSE(at::equal(rig.out(), out));
  }
}

TEST(Experts, WithoutTokensHaveGradientsOfZero) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const ExpertsRig rig(type);
    const at::Tensor grads = rig.grads();
    for (const char* name : {"gate", "up", "down"})
      for (std::int64_t e = 0; e < kMany; ++e) {
        const auto most = rig.expert(name, e, grads).abs().max().item<double>();
        EXPECT_TRUE(e < 2 ? most > 0 : most == 0) << name << " " << e << ": " << most;
      }
  }
}

// In double precision, with the losses and tokens that the pass tells.
TEST(Router, LossesAndTheirGradientsAreThoseOfAutograd) {
  for (const Kin kin : {Kin::kMixtral, Kin::kOlmoe, Kin::kQwen2Moe, Kin::kDots1})
    for (const RouterCoeffs& coeffs : {RouterCoeffs{0.5, 0}, {0, 0.3}, {0.7, 0.2}}) {
      const Tiny tiny(Shape{}.as(kin));
      const Shape& shape = tiny.shape;
      const Rope rope(tiny.config(), shape.seq, at::kDouble, at::kCPU);
      const at::Tensor params = random_params(tiny, kBlock, at::kDouble);
      const at::Tensor input = random("input", {shape.tokens(), shape.hidden}, at::kDouble);
      const at::Tensor d_out = random("slope", {shape.tokens(), shape.hidden}, at::kDouble);
      const UnitRunner runner(tiny.config(), tiny.unit(kBlock), tiny.flat(kBlock),
                              {.batch = shape.batch,
                               .seq = shape.seq,
                               .dtype = DType::kF64,
                               .aux_loss_coeff = coeffs.aux,
                               .z_loss_coeff = coeffs.z},
                              &rope);
      const at::Tensor grads = at::zeros_like(params);
      ExactSum aux, z;
      const std::int64_t experts = tiny.config().moe.experts;
      std::vector<std::int64_t> tokens(static_cast<std::size_t>(experts));
      PassInputs inputs = {.params = params, .grads = [&] { return grads; }};
      inputs.router_bias = router_bias(tiny.config());
      inputs.router = {.sequences = static_cast<double>(shape.batch),
                       .aux_loss = &aux,
                       .z_loss = &z,
                       .expert_tokens = tokens.data()};
      Kept kept;
      runner.run(parts::UnitPass::kForward, input.clone(), kept, inputs);
      const at::Tensor d_input =
          runner.run(parts::UnitPass::kBackward, d_out.clone(), kept, inputs);
      const Truth want = block_truth(tiny, params, input, d_out, coeffs);
      EXPECT_LT(distance(d_input, want.d_input), 1e-13);
      EXPECT_LT(distance(tiny, kBlock, grads, want.d_params), 1e-13);
      const auto top = static_cast<double>(tiny.config().moe.top_k);
      const auto all = static_cast<double>(shape.tokens());
      const double told = coeffs.aux * static_cast<double>(experts) * aux.result() /
                              (top * static_cast<double>(shape.seq) * all) +
                          coeffs.z * z.result() / all;
      EXPECT_NEAR(told, want.router_losses, 1e-13 * want.router_losses);
      EXPECT_EQ(std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}),
                shape.tokens() * tiny.config().moe.top_k);
    }
}

// Logits so low that every score by sigmoid is 0 in f32.
TEST(Router, ScoresThatAllVanishLeaveNumbers) {
  const Tiny tiny(Shape{}.as(Kin::kDots1));
  const Shape& shape = tiny.shape;
  const Rope rope(tiny.config(), shape.seq, at::kFloat, at::kCPU);
  const at::Tensor params = random_params(tiny, kBlock, at::kFloat);
  for (const Named& part : parts(tiny, kBlock, params)) {
    if (part.name.ends_with("router.weight")) part.values.fill_(-1e4);
    if (part.name.ends_with("mlp_norm.weight")) part.values.fill_(1);
  }
  // The last norm's output is about 1 everywhere.
  const at::Tensor input =
      at::full_like(random("input", {shape.tokens(), shape.hidden}, at::kFloat), 100.0);
  const UnitRunner runner(
      tiny.config(), tiny.unit(kBlock), tiny.flat(kBlock),
      {.batch = shape.batch, .seq = shape.seq, .dtype = DType::kF32, .aux_loss_coeff = 0.5}, &rope);
  const at::Tensor grads = at::zeros_like(params);
  PassInputs inputs = {.params = params, .grads = [&] { return grads; }};
  inputs.router_bias = router_bias(tiny.config());
  Kept kept;
  const at::Tensor out = runner.run(parts::UnitPass::kForward, input.clone(), kept, inputs).clone();
  const at::Tensor d_input =
      runner.run(parts::UnitPass::kBackward, at::full_like(out, 1.0), kept, inputs);
  EXPECT_TRUE(out.isfinite().all().item<bool>());
  EXPECT_TRUE(d_input.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace lockstep::nn
