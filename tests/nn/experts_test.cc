// What EqualsAutogradInDoublePrecision (block_test.cc) does not meet: equal scores, experts that no
// token is sent to, tokens that are all sent to the same.
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "tests/nn/oracle.h"
#include "tests/nn/units.h"

namespace lockstep::nn {
namespace {

constexpr std::int64_t kMany = 5;  // experts, of which a token meets two

struct Rig {
  explicit Rig(at::ScalarType type)
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
    at::Tensor made = at::full_like(params, std::numeric_limits<double>::quiet_NaN());
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
    Rig rig(type);
    const at::Tensor out = rig.out();
    for (std::int64_t e = 2; e < kMany; ++e) rig.expert("up", e, rig.params).mul_(3.0);
    EXPECT_TRUE(at::equal(rig.out(), out));
    rig.expert("up", 1, rig.params).mul_(3.0);
    EXPECT_FALSE(at::equal(rig.out(), out));
  }
}

TEST(Experts, WithoutTokensHaveGradientsOfZero) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Rig rig(type);
    const at::Tensor grads = rig.grads();
    for (const char* name : {"gate", "up", "down"})
      for (std::int64_t e = 0; e < kMany; ++e) {
        const auto most = rig.expert(name, e, grads).abs().max().item<double>();
        EXPECT_TRUE(e < 2 ? most > 0 : most == 0) << name << " " << e << ": " << most;
      }
  }
}

}  // namespace
}  // namespace lockstep::nn
