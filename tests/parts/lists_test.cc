// What lists add up to: closed forms, and what one list of both halves of a backward pass gains.
#include <gtest/gtest.h>

#include "lockstep/model/catalog.h"
#include "lockstep/model/flops.h"
#include "lockstep/parts/differentiate.h"
#include "lockstep/parts/read_pass.h"
#include "lockstep/parts/unit_passes.h"

namespace lockstep::parts {
namespace {

using model::Model;
using model::UnitSizes;

double flops_in(const UnitPasses& unit, std::initializer_list<UnitPass> passes) {
  double sum = 0;
  for (const UnitPass pass : passes)
    for (const Part& part : unit.at(pass).parts) sum += flops_of(part, unit.values(), unit.sizes());
  return sum;
}

TEST(Lists, FlopsAreThoseOfTheClosedForm) {
  for (const char* name :
       {"llama3-8b", "gpt3-175b", "qwen2-7b", "qwen3-8b", "olmo2-7b", "gemma2-2b"})
    for (const std::int64_t tp : {1, 2, 4}) {
      const Model model = *model::describe(model::find(name)->config);
      const UnitSizes sizes{.batch = 3, .seq = 512, .dtype = DType::kBF16, .tp = tp};
      const auto whole = [&](int unit) {
        return static_cast<double>(sizes.tokens()) *
               flops_per_token(model.unit(unit), sizes.seq, model::Mask::kCausal).forward().value;
      };
      const UnitPasses block(model.config, model.unit(1), sizes);
      const double forward = flops_in(block, {UnitPass::kForward}) * static_cast<double>(tp);
      EXPECT_DOUBLE_EQ(forward, whole(1)) << name << " " << tp;
      const double backward = flops_in(block, {UnitPass::kInputGrad, UnitPass::kWeightGrad});
      EXPECT_DOUBLE_EQ(backward * static_cast<double>(tp), 2 * whole(1));
      const int last = model.num_units() - 1;
      if (model.config.vocab % tp != 0) continue;
      const UnitPasses head(model.config, model.unit(last), sizes);
      EXPECT_DOUBLE_EQ(flops_in(head, {UnitPass::kBackward}) * static_cast<double>(tp),
                       3 * whole(last));
    }
}

// A weight's gradient that comes as early as it can frees its operands.
TEST(Lists, ABackwardPassAsOneListNeedsLess) {
  const Model model = *model::describe(model::find("llama3-8b")->config);
  for (const auto& [tp, halves, one] : {std::tuple{1, 336, 224}, {2, 168, 112}, {4, 84, 56}}) {
    UnitSizes sizes{.seq = 4096, .dtype = DType::kBF16, .tp = tp};
    sizes.sequence_parallel = tp > 1;
    const UnitPasses block(model.config, model.unit(1), sizes);
    MemoryEvents then = block.events(UnitPass::kInputGrad);
    std::ranges::copy(block.events(UnitPass::kWeightGrad), std::back_inserter(then));
    EXPECT_EQ(extra(then) >> 20, halves) << tp;
    EXPECT_EQ(extra(block.events(UnitPass::kBackward)) >> 20, one) << tp;
  }
}

}  // namespace
}  // namespace lockstep::parts
