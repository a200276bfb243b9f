#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "lockstep/model/catalog.h"
#include "lockstep/parts/unit_passes.h"
#include "tests/support/net_bytes.h"

namespace lockstep::parts {
namespace {

using model::describe;
using model::Drop;
using model::find;
using model::Model;
using model::ModelConfig;
using model::UnitSizes;

Drop drop_of(int mask) { return {(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0}; }

constexpr std::array kLlamas = {"llama-tiny", "llama3.2-1b", "llama2-7b"};
constexpr std::array kOthers = {"gpt2-tiny", "qwen2-0.5b", "qwen3-0.6b", "olmo2-tiny",
                                "gemma2-tiny"};

std::int64_t left(const UnitPasses& unit, UnitPass pass) { return net(unit.events(pass)); }

UnitPasses passes(const Model& model, int unit, const UnitSizes& sizes) {
  return {model.config, model.unit(unit), sizes};
}

// Calls fn(model, sizes) for shapes whose worst moments lie in different places.
template <class Names, class Fn>
void for_each_case_of(const Names& names, Fn fn) {
  for (const char* name : names)
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16})
      for (int mask = 0; mask < 8; ++mask)
        for (const auto& [batch, seq, chunk] :
             {std::tuple{1, 16, 0}, {3, 200, 7}, {2, 1024, 512}}) {
          const UnitSizes sizes{.batch = batch,
                                .seq = seq,
                                .dtype = dtype,
                                .drop = drop_of(mask),
                                .head_chunk = chunk};
          SCOPED_TRACE(std::string(name) + " " + std::string(to_text(dtype)) + " mask " +
                       std::to_string(mask) + " seq " + std::to_string(seq));
          fn(*describe(find(name)->config), sizes);
        }
}

template <class Fn>
void for_each_case(Fn fn) {
  for_each_case_of(kLlamas, fn);
  for_each_case_of(kOthers, fn);
}

// A pass turns what the program says it kills into what it says it defines, to the byte.
TEST(PassBytes, WhatRemainsIsWhatTheTablesSay) {
  for_each_case([](const Model& model, const UnitSizes& sizes) {
    const std::int64_t act = boundary_bytes(model.config, sizes);
    const UnitPasses embed = passes(model, 0, sizes), block = passes(model, 1, sizes),
                     head = passes(model, model.num_units() - 1, sizes);
    const std::int64_t stash = total(block.stash());
    const std::int64_t work = total(block.work());
    EXPECT_EQ(left(block, UnitPass::kForward), act + stash - act);
    EXPECT_EQ(left(block, UnitPass::kCheckpoint), act);
    EXPECT_EQ(left(block, UnitPass::kEvaluate), act - act);
    EXPECT_EQ(left(block, UnitPass::kRecompute), stash - act);
    EXPECT_EQ(left(block, UnitPass::kInputGrad), work + act - stash - act);
    EXPECT_EQ(left(block, UnitPass::kWeightGrad), -work);
    EXPECT_EQ(left(embed, UnitPass::kForward), act);
    EXPECT_EQ(left(embed, UnitPass::kWeightGrad), -act);
    EXPECT_EQ(left(head, UnitPass::kForward), 0);
    EXPECT_EQ(left(head, UnitPass::kEvaluate), -act);
    EXPECT_EQ(left(head, UnitPass::kBackward), act - act);
  });
}

// Nothing is given back that was not taken or handed in, nor twice, and names are of one size.
TEST(PassBytes, EventsPairUp) {
  for_each_case([](const Model& model, const UnitSizes& sizes) {
    const UnitPasses block = passes(model, 1, sizes);
    for (const UnitPass pass : {UnitPass::kForward, UnitPass::kCheckpoint, UnitPass::kEvaluate,
                                UnitPass::kRecompute, UnitPass::kInputGrad}) {
      std::map<std::string, std::int64_t> live;
      for (const MemoryEvent& event : block.events(pass)) {
        ASSERT_NE(event.bytes, 0) << event.name;
        std::int64_t& bytes = live[event.name];
        if (event.bytes > 0) {
          ASSERT_EQ(bytes, 0) << event.name;
        } else if (bytes != 0) {
          ASSERT_EQ(bytes, -event.bytes) << event.name;
        }
        bytes += event.bytes;
      }
    }
  });
}

// On tensor ranks too: what goes and what stays is of their share. A whole backward pass leaves
// what its halves on their own leave.
TEST(PassBytes, WhatRemainsOnATensorRankIsWhatTheTablesSay) {
  for_each_case([](const Model& model, UnitSizes sizes) {
    sizes.tp = 2;
    for (const bool sp : {false, true}) {
      sizes.sequence_parallel = sp;
      const std::int64_t act = boundary_bytes(model.config, sizes);
      const UnitPasses embed = passes(model, 0, sizes), block = passes(model, 1, sizes),
                       head = passes(model, model.num_units() - 1, sizes);
      const std::int64_t stash = total(block.stash());
      const std::int64_t work = total(block.work());
      EXPECT_EQ(left(block, UnitPass::kForward), stash);
      EXPECT_EQ(left(block, UnitPass::kCheckpoint), act);
      EXPECT_EQ(left(block, UnitPass::kEvaluate), 0);
      EXPECT_EQ(left(block, UnitPass::kRecompute), stash - act);
      EXPECT_EQ(left(block, UnitPass::kInputGrad), work - stash);
      EXPECT_EQ(left(block, UnitPass::kWeightGrad), -work);
      EXPECT_EQ(left(block, UnitPass::kBackward), -stash);
      EXPECT_EQ(left(embed, UnitPass::kForward), act);
      EXPECT_EQ(left(embed, UnitPass::kWeightGrad), -act);
      EXPECT_EQ(left(head, UnitPass::kEvaluate), -act);
      EXPECT_EQ(left(head, UnitPass::kBackward), 0);
    }
  });
}

// W needs nothing beside its operands, or all rows of one of them at a time: those of d_out come
// first, when every other operand is still there but the finished gradient of a bias or of a norm
// behind the product, and their own rows go only after.
TEST(PassBytes, PutOffWeightsGatherOneOperandAtATime) {
  for_each_case([](const Model& model, UnitSizes sizes) {
    sizes.tp = 2;
    const std::int64_t all_rows = boundary_bytes(model.config, sizes);
    sizes.sequence_parallel = false;
    EXPECT_EQ(extra(passes(model, 1, sizes).events(UnitPass::kWeightGrad)), 0);
    sizes.sequence_parallel = true;
    const bool has_vector =
        model.config.linear_bias || model.config.norm_place != model::NormPlace::kBefore;
    const std::int64_t vector =
        has_vector ? model.config.hidden * std::max<std::int64_t>(sizes.width(), 4) : 0;
    EXPECT_EQ(extra(passes(model, 1, sizes).events(UnitPass::kWeightGrad)), all_rows - vector);
  });
}

struct Shape {
  std::int64_t t, h, q, k, f, a, s, lse;
};

Shape shape_of(const Model& model, const UnitSizes& sizes) {
  const ModelConfig& c = model.config;
  return {sizes.tokens(), c.hidden, c.heads * c.head_dim, c.kv_heads * c.head_dim,
          c.ffn,          c.heads,  sizes.width(),        std::max<std::int64_t>(sizes.width(), 4)};
}

struct Flash {
  std::int64_t forward, backward;
};

// Elements; copied from measurements of LibTorch's kernel, for the three lengths above.
Flash flash_of(const Model& model, const UnitSizes& sizes) {
  const std::int64_t d = model.config.head_dim;
  if (sizes.seq == 16) return {16 * 16 + 2 * 16 + 16 * d, 2 * 16 * 16 + 16};
  if (sizes.seq == 200) return {64 * 200 + 2 * 64 + 64 * d, 2 * 64 * 200 + 64};
  return {256 * 512 + 2 * 256 + 256 * d, 2 * 256 * 512 + 256};
}

// Every moment at which something is about to be given back, added up by hand from what is then
// live, nothing dropped.
TEST(PassBytes, WorstMomentsOfABlockEqualSumsByHand) {
  for_each_case_of(kLlamas, [](const Model& model, const UnitSizes& sizes) {
    if (sizes.drop != Drop{} || sizes.dtype == DType::kBF16) return;  // bf16: nn measures it
    const auto [t, h, q, k, f, a, s, lse] = shape_of(model, sizes);
    const Flash flash = flash_of(model, sizes);
    const auto most = [&](UnitPass pass) { return extra(passes(model, 1, sizes).events(pass)); };
    const std::int64_t attended = s * t * (1 + h + q + 2 * k + q) + lse * t * a;
    const std::int64_t kept = attended + s * t * (h + 1 + h + 2 * f + f);
    EXPECT_EQ(most(UnitPass::kForward),
              std::max({s * t * (1 + h + q + 2 * k) + s * t * (q + k) / 2,
                        attended + lse * flash.forward, kept + s * t * h}));
    EXPECT_EQ(most(UnitPass::kRecompute), std::max(attended + lse * flash.forward, kept));

    // Input given back once the sum after attention exists; what follows is then relative to -t h.
    const std::int64_t attention =
        std::max(s * t * (q + 2 * k + std::max(h, (q + k) / 2)) + 0,
                 s * t * (2 * q + 2 * k) + lse * (t * a + flash.forward));
    const std::int64_t norms = s * t * (1 + h);
    for (const auto& [pass, given] :
         {std::pair{UnitPass::kCheckpoint, std::int64_t{0}}, {UnitPass::kEvaluate, t * h}})
      EXPECT_EQ(most(pass),
                std::max({norms, attention, s * t * (q + h), s * (t * (h + 1 + h) - given),
                          s * (t * (h + h + 2 * f) - given), s * (t * (h + 3 * f) - given),
                          s * (t * (h + f + h) - given)}));

    // The backward pass starts with the stash and the gradient of the output.
    const std::int64_t after_mlp = s * (h - t);                    // d_middle for middle, d_gain
    const std::int64_t after_attention = after_mlp - lse * t * a;  // d_qkv for qkv
    EXPECT_EQ(
        most(UnitPass::kInputGrad),
        std::max({s * t * 3 * f, s * (t * (2 * h + 1) + h),
                  after_mlp + s * t * (2 * q + 2 * k) + lse * flash.backward,
                  after_attention + s * t * (q + 2 * k), after_attention + s * t * (q + k) / 2,
                  after_attention + s * (t * (2 * h + 1) + h)}));
    EXPECT_EQ(most(UnitPass::kWeightGrad), 0);
  });
}

// A dropped row leaves the stash and comes back in the backward pass, where it stays in the work.
TEST(PassBytes, DroppedRowsAreRebuiltBackwards) {
  for_each_case([](const Model& model, const UnitSizes& sizes) {
    const MemoryEvents events = passes(model, 1, sizes).events(UnitPass::kInputGrad);
    const auto taken = [&](const char* name) {
      return std::ranges::count_if(
          events, [&](const MemoryEvent& e) { return e.name == name && e.bytes > 0; });
    };
    const bool before = model.config.norm_place != model::NormPlace::kAfter;
    EXPECT_EQ(taken("attn_normed"), before && sizes.drop.attn_normed);
    EXPECT_EQ(taken("mlp_normed"), before && sizes.drop.mlp_normed);
    EXPECT_EQ(taken("product"), sizes.drop.product ? 1 : 0);
  });
}

TEST(PassBytes, WorstMomentsOfTheHeadEqualSumsByHand) {
  for_each_case_of(kLlamas, [](const Model& model, const UnitSizes& sizes) {
    if (sizes.dtype == DType::kBF16) return;  // nn measures it
    const auto [t, h, q, k, f, a, s, lse] = shape_of(model, sizes);
    const int head = model.num_units() - 1;
    const std::int64_t n = sizes.head_chunk > 0 ? std::min(sizes.head_chunk, t) : t;
    const std::int64_t chunk = s * n * model.config.vocab + 8 * n;
    EXPECT_EQ(extra(passes(model, head, sizes).events(UnitPass::kBackward)),
              std::max(s * t * (1 + 2 * h) + chunk, s * (t * (2 + 2 * h) + h)));
    EXPECT_EQ(extra(passes(model, head, sizes).events(UnitPass::kEvaluate)),
              std::max(s * t * (1 + h), chunk));
  });
}

}  // namespace
}  // namespace lockstep::parts
