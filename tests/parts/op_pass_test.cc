#include "lockstep/parts/op_pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lockstep/model/catalog.h"

namespace lockstep::parts {
namespace {

using program::Op;
using program::OpKind;

std::set<ValueId> storages(const Pass& pass, const std::vector<ValueId>& ids, ValueId but) {
  std::set<ValueId> all;
  for (const ValueId id : ids)
    if (id != but) all.insert(pass.storage(id));
  return all;
}

// What each of a microbatch's passes keeps is what the next one takes, and the last keeps nothing.
void expect_chain(const UnitPasses& unit, const std::vector<UnitPass>& passes) {
  std::set<ValueId> kept;
  for (const UnitPass name : passes) {
    const Pass& pass = unit.at(name);
    EXPECT_EQ(storages(pass, pass.before, pass.given), kept) << kUnitPasses.name_of(name);
    kept = storages(pass, pass.after, pass.result);
  }
  EXPECT_TRUE(kept.empty());
}

TEST(OpPass, HandOnWhatTheNextOneTakes) {
  for (const char* name : {"llama3-8b", "gpt2", "qwen3-8b"})
    for (const bool sp : {false, true})
      for (const bool recomputes : {false, true})
        for (const bool split : {false, true}) {
          model::ModelConfig config = model::find(name)->config;
          config.vocab = 1024;  // gpt2's is odd
          const model::Model model = *model::describe(config);
          program::StepShape step;
          step.recompute = {false, recomputes, false};
          for (int unit = 0; unit < 3; ++unit) {
            SCOPED_TRACE(std::string(name) + " unit " + std::to_string(unit));
            const model::Unit& of = model.distinct[static_cast<std::size_t>(unit)];
            const bool splits = split && unit < step.head();
            std::vector<OpKind> ops = {OpKind::kForward};
            if (recomputes && unit == 1) ops.push_back(OpKind::kRecompute);
            ops.push_back(splits ? OpKind::kInputGrad : OpKind::kBackward);
            if (splits) ops.push_back(OpKind::kWeightGrad);
            const UnitPasses lists(model.config, of,
                                   {.batch = 2, .seq = 64, .tp = 2, .sequence_parallel = sp});
            for (const int microbatch : {0, 1}) {
              std::vector<UnitPass> passes;
              for (const OpKind kind : ops)
                passes.push_back(
                    *pass_of(step, of, {.kind = kind, .unit = unit, .microbatch = microbatch}));
              EXPECT_TRUE(std::ranges::any_of(lists.at(passes.back()).parts, writes_gradient));
              expect_chain(lists, passes);
            }
          }
        }
}

TEST(OpPass, EvaluationKeepsNothing) {
  const model::Model model = *model::describe(model::find("llama3-8b")->config);
  program::StepShape step;
  step.forward_only = true;
  for (int unit = 0; unit < 3; ++unit) {
    const model::Unit& of = model.distinct[static_cast<std::size_t>(unit)];
    expect_chain(UnitPasses(model.config, of, {.seq = 64}),
                 {*pass_of(step, of, {.kind = OpKind::kForward, .unit = unit})});
  }
}

}  // namespace
}  // namespace lockstep::parts
