// Faults that training systems have shipped in mixtures of experts, planted as in classics_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "lockstep/base/segment.h"
#include "lockstep/runtime/tensor_workspace.h"
#include "tests/train/classics.h"
#include "tests/train/faulty_group.h"

namespace lockstep::train {
namespace {

verify::Fault planned(const GroupPlan& plan) {
  verify::Fault fault;
  fault.wrap_world = [plan](comm::World& inner) {
    return std::make_unique<FaultyWorld>(inner, plan);
  };
  return fault;
}

// Of the weights of rows that other ranks' experts met, no gradient comes back. Two blocks exchange
// rows six times in F and six times in B, there the outputs' gradients, those of the weights and
// those of the inputs.
verify::Fault keeping_gradients_of_weights() {
  return planned({.per_step = 12, .at = 7, .axes = {"ep"}});
}

constexpr int kMixtureUnits = 4;

// The halves of a rank's experts change places: at every second call they are as they were.
void swap_experts(const Value& of, Inner inner) {
  const auto all = numbers(inner.buffer(of));
  std::ranges::rotate(all, all.begin() + std::ssize(all) / 2);
}

// Passes read the weights of other experts than were chosen.
verify::Fault reading_other_experts() {
  return hooked([](Rank) {
    return Hooks{.compute = [](const Op& op, const Effects& effects, Inner inner) {
      const Value weights = {ValueKind::kParam, experts_of(op.unit, kMixtureUnits)};
      const bool reads = std::ranges::count(effects.reads, weights) > 0;
      if (reads) swap_experts(weights, inner);
      inner.compute(op, effects);
      if (reads) swap_experts(weights, inner);
    }};
  });
}

// Gradients of a rank's experts end in another order.
verify::Fault scrambling_experts() {
  return hooked([](Rank) {
    return Hooks{.moved = [](const Value&, const Value& to, Inner inner) {
      if (to.kind == ValueKind::kGradShard && is_experts(to.a, kMixtureUnits))
        swap_experts(to, inner);
    }};
  });
}

verify::Fault counting_tokens_twice() {
  return hooked([](Rank) {
    return Hooks{.sums = [](exec::StepSums& sums, Inner) {
      for (std::int64_t& tokens : sums.expert_tokens) tokens *= 2;
    }};
  });
}

// A checkpoint that holds zeros for selection biases: of every step that goes on from one.
verify::Fault forgetting_biases() {
  return counting([](std::int64_t count, Inner inner) {
    auto& workspace = dynamic_cast<runtime::TensorWorkspace&>(inner);
    workspace.set_router_bias(std::vector<float>(workspace.router_bias().size()));
    return count;
  });
}

// The loss that balances experts counts the choices of a rank's own tokens.
verify::Fault balancing_own_tokens() {
  return planned({.per_step = 2, .at = 0, .axes = {"cp"}, .dtype = DType::kI64});
}

// It divides by the tokens of a sequence that a tensor rank has.
verify::Fault dividing_by_own_rows() {
  verify::Fault fault;
  fault.change = [](Job& job) { job.workspace.unit.aux_loss_coeff *= 2.0; };
  return fault;
}

// Where tensor ranks have whole experts: the router, which lies in front of the gains, is reduced
// over them no more than an expert's weights are.
verify::Fault keeping_routers_apart() {
  return hooked([](Rank) {
    return Hooks{.replicated_part = [](int unit, Inner inner) {
      const Buffer part = inner.replicated_part(unit);
      const std::int64_t router = small_mixture().model.moe.experts * small_mixture().model.hidden;
      return part.count > router ? part.slice(router, part.count - router) : part;
    }};
  });
}

// Gradients of experts are summed over the ranks that sum those of all else.
verify::Fault reducing_experts_over_data_alone(Program program) {
  for (auto& list : program.lists)
    for (Op& op : list)
      if (op.kind == OpKind::kReduce && program.step.is_experts(op.unit))
        op.group = CommGroup::kData;
  return {program};
}

// The second of two tensor ranks tells of no tokens, as where both had the same ones.
verify::Fault telling_tokens_once() {
  return bringing_more(
      [](exec::StepSums& sums, Inner) { std::ranges::fill(sums.expert_tokens, 0); });
}

// The loss that balances experts takes its own rows of a sequence for all. Choices of 16
// microbatches of one sequence are gathered in two blocks; Norm sums words, which is two calls
// more, and digests are compared before.
verify::Fault balancing_own_rows() {
  return planned({.per_step = 34, .at = 1, .axes = {"tp"}, .dtype = DType::kI64});
}

const Classic kMixtureClassics[] = {
    {"router's gradient without that of other ranks' experts", "transformers 48687", false,
     "dp2 ep2 zero0 m1 step", verify::FailureKind::kNumbers,
     [](P) { return keeping_gradients_of_weights(); }},
    {"weights of other experts than chosen", "NeMo Automodel PR 2676", false,
     "dp4 ep4 zero0 m1 step", verify::FailureKind::kNumbers,
     [](P) { return reading_other_experts(); }},
    {"gradients of experts in another order", "Megatron-LM PR 6099", false, "dp2 ep2 zero1 m1 step",
     verify::FailureKind::kNumbers, [](P) { return scrambling_experts(); }},
    {"tokens of experts counted again by recompute", "torchtitan PR 1593", false,
     "dp2 zero0 m1 step recompute=full", verify::FailureKind::kNumbers,
     [](P) { return counting_tokens_twice(); }},
    {"auxiliary loss of one context rank's tokens", "Megatron-LM PR 5047", false,
     "cp2 dp1 zero0 m1 step", verify::FailureKind::kNumbers,
     [](P) { return balancing_own_tokens(); }},
    {"auxiliary loss over one tensor rank's rows", "Megatron-LM PR 5996", false,
     "tp2 etp2 dp1 zero0 m1 step", verify::FailureKind::kNumbers,
     [](P) { return dividing_by_own_rows(); }},
    {"router's gradient of one tensor rank's rows", "", false, "tp2 dp1 zero0 m1 step",
     verify::FailureKind::kReplicas, [](P) { return keeping_routers_apart(); }},
    {"gradients of whole experts summed over the data ranks alone", "", false,
     "tp2 dp2 zero0 m1 step", verify::FailureKind::kReplicas, reducing_experts_over_data_alone},
    {"tokens of experts told by one tensor rank", "", false, "tp2 dp1 ep2 zero1 m1 step",
     verify::FailureKind::kNumbers, [](P) { return telling_tokens_once(); }},
    {"auxiliary loss of one tensor rank's choices", "", false, "tp2 dp1 ep2 zero0 m16 step",
     verify::FailureKind::kNumbers, [](P) { return balancing_own_rows(); }},
    {"selection biases saved as zeros", "torchtitan PR 1226", false, "dp2 zero1 m1 step",
     verify::FailureKind::kNumbers, [](P) { return forgetting_biases(); }},
};

TEST(Classics, OfMixturesAreAllNoticed) {
  auto verifier = verify::Verifier::create(small_mixture(), 2);
  ASSERT_TRUE(verifier.ok()) << verifier.error().message;
  EXPECT_EQ(plant_all(*verifier, kMixtureClassics, false), std::ssize(kMixtureClassics));
}

}  // namespace
}  // namespace lockstep::train
