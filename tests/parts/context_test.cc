// Lists of attention over a context group: what is sent, and what of it is left out. That they
// compute the right thing is tests/nn's and `verify`'s to show.
#include "lockstep/parts/context.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/model/arch.h"
#include "lockstep/model/catalog.h"
#include "lockstep/parts/unit_passes.h"

namespace lockstep::parts {
namespace {

constexpr std::int64_t kTokens = 64;  // of a sequence

UnitPasses block_of(std::int64_t cp, model::CpMethod context, std::int64_t window, DType dtype) {
  model::ModelConfig config = model::find("llama3-8b")->config;
  config.window = window;
  const model::Model model = *describe(config);
  return {
      config, model.unit(1), {.seq = kTokens / cp, .dtype = dtype, .cp = cp, .context = context}};
}

std::int64_t count(const UnitPasses& unit, UnitPass pass, Kind kind) {
  return std::ranges::count(unit.collectives(pass), kind, &Collective::kind);
}

// Keys and values of a rank.
std::int64_t key_bytes(const UnitPasses& unit, DType dtype) {
  return unit.sizes()[Dim::kT] * unit.sizes()[Dim::kKeys] *
         static_cast<std::int64_t>(size_of(dtype));
}

TEST(ContextLists, ARingSendsKeysOnceForwardAndTwiceBackward) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::int64_t cp : {2, 4, 8})
      for (const std::int64_t window : {0, 1, 2, 5, 60}) {
        const UnitPasses unit = block_of(cp, model::CpMethod::kRing, window, dtype);
        const auto reached = std::ssize(model::context_distances(cp, kTokens / cp, window));
        for (const auto& [pass, times] : {std::pair{UnitPass::kForward, 1},
                                          {UnitPass::kRecompute, 1},
                                          {UnitPass::kBackward, 2},
                                          {UnitPass::kInputGrad, 2},
                                          {UnitPass::kWeightGrad, 0}}) {
          EXPECT_EQ(count(unit, pass, Kind::kExchange), times * reached) << cp << " " << window;
          EXPECT_EQ(sent(unit.collectives(pass)), times * reached * key_bytes(unit, dtype));
        }
      }
}

TEST(ContextLists, GatheredKeysAreScatteredBack) {
  for (const std::int64_t cp : {2, 4}) {
    const UnitPasses unit = block_of(cp, model::CpMethod::kGather, 0, DType::kBF16);
    EXPECT_EQ(count(unit, UnitPass::kForward, Kind::kAllGather), 1);
    EXPECT_EQ(count(unit, UnitPass::kBackward, Kind::kAllGather), 1);
    EXPECT_EQ(count(unit, UnitPass::kBackward, Kind::kReduceScatter), 1);
    EXPECT_EQ(sent(unit.collectives(UnitPass::kBackward)),
              2 * (cp - 1) * key_bytes(unit, DType::kBF16));
  }
}

// Queries, keys and values to the ranks of their heads, outputs back, and the gradients of both;
// what a policy drops is exchanged again. 32 heads of queries, 8 of keys: 16 ranks share these.
TEST(ContextLists, HeadsAreExchangedForPositionsAndBack) {
  for (const std::int64_t cp : {2, 8, 16}) {
    const UnitPasses unit = block_of(cp, model::CpMethod::kUlysses, 0, DType::kBF16);
    const Sizes& sizes = unit.sizes();
    const std::int64_t head = sizes[Dim::kT] * sizes[Dim::kD] * 2;  // bytes of this rank's tokens
    const std::int64_t keys = std::max<std::int64_t>(8, cp);
    const std::int64_t all = (2 * 32 + 2 * keys) * head / cp * (cp - 1);
    for (const UnitPass pass :
         {UnitPass::kForward, UnitPass::kRecompute, UnitPass::kBackward, UnitPass::kInputGrad}) {
      EXPECT_EQ(count(unit, pass, Kind::kAllToAll), 2) << cp;
      EXPECT_EQ(sent(unit.collectives(pass)), all) << cp;
    }
    EXPECT_TRUE(unit.collectives(UnitPass::kWeightGrad).empty());
  }
}

// An exchange is under way while attention over the keys before it computes.
TEST(ContextLists, ExchangesRunBesideAttention) {
  const UnitPasses unit = block_of(4, model::CpMethod::kRing, 0, DType::kF32);
  for (const UnitPass pass : {UnitPass::kForward, UnitPass::kBackward}) {
    const Parts& parts = unit.at(pass).parts;
    for (auto part = parts.begin(); part != parts.end(); ++part) {
      if (part->kind != Kind::kExchange || unit.values()[part->out[0]].name != "other_keys")
        continue;
      const auto wait = std::find_if(part, parts.end(), [&](const Part& later) {
        return later.kind == Kind::kWait && later.in[0] == part->out[0];
      });
      EXPECT_TRUE(std::any_of(part, wait, [](const Part& between) {
        return between.kind == Kind::kBlockAttention || between.kind == Kind::kMoreAttention ||
               between.kind == Kind::kBlockAttentionGrad ||
               between.kind == Kind::kMoreAttentionGrad;
      }));
    }
  }
}

// All ranks together do what one does, if pairs of a query and a key that it sees are counted.
TEST(ContextLists, FlopsAreThoseOfWholeSequences) {
  const auto flops_of_attention = [](const UnitPasses& unit) {
    double sum = 0;
    for (const Part& part : unit.at(UnitPass::kForward).parts)
      if (part.param.empty()) sum += flops_of(part, unit.values(), unit.sizes());
    return sum;
  };
  for (const std::int64_t window : {0, 5})
    for (const auto context : model::kCpMethods) {
      const double whole = flops_of_attention(block_of(1, context, window, DType::kF32));
      const double shared = flops_of_attention(block_of(4, context, window, DType::kF32));
      EXPECT_NEAR(4 * shared, whole, 1e-9 * whole) << window;
    }
}

}  // namespace
}  // namespace lockstep::parts
