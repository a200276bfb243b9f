// Faults that training systems have shipped, planted one at a time: verify must see each of them,
// even where no program can express them, and say by what it saw it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "lockstep/data/mock_tokens.h"
#include "lockstep/model/context.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/lower.h"
#include "lockstep/verify/verify.h"
#include "tests/train/classics.h"
#include "tests/train/faulty_group.h"

namespace lockstep::train {
namespace {

using Tokens = std::vector<std::int64_t>;

Numbers copy_of(std::span<const double> values) { return {values.begin(), values.end()}; }

// Faults of the program.

verify::Fault with_group(Program program, OpKind kind, CommGroup group) {
  for (auto& list : program.lists)
    for (Op& op : list)
      if (op.kind == kind) op.group = group;
  return {program};
}

// Leaves out every op of that kind, or runs it twice, on all coordinates.
verify::Fault repeated(Program program, OpKind kind, int times) {
  for (auto& list : program.lists) {
    std::vector<std::int32_t> moved;
    std::vector<Op> changed;
    for (const Op& op : list) {
      moved.push_back(static_cast<std::int32_t>(changed.size()));
      const bool is_wait = op.kind == OpKind::kWait;
      const OpKind acts = is_wait ? list[static_cast<std::size_t>(op.target)].kind : op.kind;
      for (int i = 0; i < (acts == kind ? times : 1); ++i) changed.push_back(op);
      if (is_wait && acts != kind)
        changed.back().target = moved[static_cast<std::size_t>(op.target)];
    }
    list = std::move(changed);
  }
  return {program};
}

// Every Free right behind the backward pass of its unit comes right before it.
verify::Fault freeing_before_backward(Program program) {
  for (auto& list : program.lists)
    for (std::size_t i = 1; i < list.size(); ++i)
      if (list[i].kind == OpKind::kFree && list[i - 1].kind == OpKind::kBackward &&
          list[i].unit == list[i - 1].unit)
        std::swap(list[i], list[i - 1]);
  return {program};
}

// Faults of the machinery.

// The rank decides by the norm of what it brought itself; the norm it reports is right.
Hooks own_norm() {
  auto own = std::make_shared<ExactSum>();
  Hooks hooks;
  hooks.sums = [own](exec::StepSums& sums, Inner) { *own = sums.squares; };
  hooks.set_sums = [own](const exec::StepSums& sums, Inner inner) {
    exec::StepSums mine = sums;
    mine.squares = *own;
    inner.set_sums(mine);
  };
  return hooks;
}

verify::Fault clipping_alone() {
  return hooked([](Rank) { return own_norm(); });
}

verify::Fault tied_counted_twice_in_norm() {
  return hooked([](Rank rank) {
    return Hooks{.sums = [rank](exec::StepSums& sums, Inner inner) {
      if (rank.value != 0) return;
      for (const double x : numbers(inner.tied_part(0))) sums.squares.add(x * x);
    }};
  });
}

verify::Fault replicated_counted_twice_in_norm() {
  return bringing_more([](exec::StepSums& sums, Inner inner) {
    for (int unit = 1; unit <= 3; ++unit)
      for (const double x : numbers(inner.replicated_part(unit))) sums.squares.add(x * x);
  });
}

verify::Fault tokens_counted_on_every_tensor_rank() {
  return bringing_more(
      [](exec::StepSums& sums, Inner inner) { sums.tokens = inner.valid_tokens(); });
}

// One rank's replicated gradients are summed over too few elements, as when a gain is forgotten.
verify::Fault reducing_all_gains_but_the_last() {
  return hooked([](Rank) {
    return Hooks{.replicated_part = [](int unit, Inner inner) {
      const Buffer part = inner.replicated_part(unit);
      return part.slice(0, part.count - 32);
    }};
  });
}

verify::Fault copies_counted_twice_in_norm() {
  return bringing_more([](exec::StepSums& sums, Inner inner) {
    for (int unit = 1; unit <= 2; ++unit)
      for (const Buffer& part : inner.copied_parts(unit))
        for (const double x : numbers(part)) sums.squares.add(x * x);
  });
}

// Each rank goes on with the gradient that its own queries have for a head that it shares.
verify::Fault keeping_copies_apart() {
  return hooked(
      [](Rank) { return Hooks{.copied_parts = [](int, Inner) { return std::vector<Buffer>(); }}; });
}

// As if under sequence parallelism: all that two tensor ranks hold alike is summed, without ZeRO.
verify::Fault reducing_whole_gains(const Program& program) {
  program::StepShape step = program.step;
  step.partial.assign(static_cast<std::size_t>(step.units()), true);
  step.partial[0] = false;
  verify::Fault fault = hooked([](Rank) {
    return Hooks{.replicated_part = [](int unit, Inner inner) {
      const model::Model model = *model::describe(small_spec(false).model);
      const auto kind = static_cast<std::size_t>(model.order[static_cast<std::size_t>(unit)]);
      const model::FlatRange range = model::flat_layouts(model, 2)[kind].replicated;
      return inner.buffer({ValueKind::kAccGrad, unit}).slice(range.begin, range.size());
    }};
  });
  fault.program = *program::lower(*pipeline::find("1f1b")->build(step.shape), step);
  fault.program->step = program.step;
  return fault;
}

verify::Fault scaling_reduced(double factor) {
  return hooked([factor](Rank) {
    return Hooks{.moved = [factor](const Value&, const Value& to, Inner inner) {
      if (to.kind != ValueKind::kAccGrad) return;
      for (double& x : numbers(inner.buffer(to))) x *= factor;
    }};
  });
}

// Calls `change(before, now)` where a microbatch's gradient has been added to earlier ones.
verify::Fault adding(std::function<void(const Numbers&, std::span<double>)> change) {
  return hooked([change](Rank) {
    return Hooks{.compute = [change](const Op& op, const Effects& effects, Inner inner) {
      const auto sum = std::ranges::find(effects.mutates, ValueKind::kMainGrad, &Value::kind);
      if (sum == effects.mutates.end()) return inner.compute(op, effects);
      const Numbers before = copy_of(numbers(inner.buffer(*sum)));
      inner.compute(op, effects);
      change(before, numbers(inner.buffer(*sum)));
    }};
  });
}

verify::Fault overwriting() {
  return adding([](const Numbers& before, std::span<double> now) {
    for (std::size_t i = 0; i < now.size(); ++i) now[i] -= before[i];
  });
}

verify::Fault draining_twice() {
  return adding([](const Numbers& before, std::span<double> now) {
    for (std::size_t i = 0; i < now.size(); ++i) now[i] += now[i] - before[i];
  });
}

// What is sent for a later microbatch is what was sent for the first.
verify::Fault resending(ValueKind kind) {
  return hooked([kind](Rank) {
    auto first = std::make_shared<std::map<int, Numbers>>();
    return Hooks{.moved = [kind, first](const Value& from, const Value& to, Inner inner) {
      if (from.kind != kind || to.kind != ValueKind::kSendBuffer) return;
      const auto now = numbers(inner.buffer(to));
      if (from.b == 0)
        (*first)[from.a] = copy_of(now);
      else
        std::ranges::copy(first->at(from.a), now.begin());
    }};
  });
}

verify::Fault recomputing_from_another() {
  return hooked([](Rank) {
    auto first = std::make_shared<std::map<int, Numbers>>();
    return Hooks{.compute = [first](const Op& op, const Effects& effects, Inner inner) {
      if (op.kind == OpKind::kRecompute) {
        const auto input = numbers(inner.buffer({ValueKind::kCheckpoint, op.unit, op.microbatch}));
        const auto [kept, is_new] = first->try_emplace(op.unit, copy_of(input));
        if (!is_new) std::ranges::copy(kept->second, input.begin());
      }
      inner.compute(op, effects);
    }};
  });
}

// Calls `change(unit, weights)` before a computation that reads gathered weights.
verify::Fault reading_gathered(
    std::function<std::function<void(const Op&, std::span<double>)>()> make) {
  return hooked([make](Rank) {
    return Hooks{.compute = [change = make()](const Op& op, const Effects& effects, Inner inner) {
      const Value weights = {ValueKind::kParam, op.unit};
      if (std::ranges::find(effects.reads, weights) != effects.reads.end())
        change(op, numbers(inner.buffer(weights)));
      inner.compute(op, effects);
    }};
  });
}

verify::Fault gathering_once() {
  return reading_gathered([] {
    auto first = std::make_shared<std::map<int, Numbers>>();
    return [first](const Op& op, std::span<double> weights) {
      const auto [kept, is_new] = first->try_emplace(op.unit, copy_of(weights));
      if (!is_new) std::ranges::copy(kept->second, weights.begin());
    };
  });
}

verify::Fault reusing_memory_before_backward() {
  return reading_gathered([] {
    return [](const Op& op, std::span<double> weights) {
      if (op.kind != OpKind::kForward) std::ranges::fill(weights, 0.0);
    };
  });
}

verify::Fault counting_updates_twice() {
  return hooked([](Rank) {
    return Hooks{.set_sums = [](const exec::StepSums& sums, Inner inner) {
      inner.set_sums(sums);
      inner.set_sums(sums);
    }};
  });
}

// All data ranks read what the first of two should.
class SameSamples final : public data::TokenSource {
 public:
  explicit SameSamples(const spec::Spec& spec)
      : batch_(spec.batch.global_batch),
        tokens_(static_cast<std::uint64_t>(spec.train.seed), spec.model.vocab, true) {}
  void read(std::int64_t sample, std::span<std::int64_t> tokens,
            std::span<std::int64_t> labels) const override {
    const std::int64_t in_step = sample % batch_;
    tokens_.read(sample - in_step + in_step % (batch_ / 2), tokens, labels);
  }

 private:
  std::int64_t batch_;
  data::MockTokens tokens_;
};

const data::TokenSource& same_samples() {
  static const SameSamples source(small_spec(false));
  return source;
}

// The loss of the second of two context ranks of two tensor ranks each is added to nothing.
verify::Fault showing_the_loss_of_one_context_rank() {
  return hooked([](Rank rank) {
    return Hooks{.sums = [rank](exec::StepSums& sums, Inner) {
      if (rank.value >= 2) sums.loss = {};
    }};
  });
}

// Each of two context ranks divides by the labels of its own tokens, and the mean of both is taken.
// Steps are tried in the order 0, 1, 1.
std::int64_t twice_own_labels(Rank rank, std::int64_t step) {
  const spec::Batch batch = small_spec(false).batch;
  const data::MockTokens source(1234, small_spec(false).model.vocab, true);
  const auto seq = static_cast<std::size_t>(batch.seq);
  std::int64_t own = 0;
  for (std::int64_t i = 0; i < batch.global_batch; ++i) {
    Tokens tokens(seq), labels(seq);
    source.read(step * batch.global_batch + i, tokens, labels);
    for (const auto& run : model::position_runs({2, rank.value}, batch.seq / 2))
      own += run.count - std::count(labels.begin() + run.position,
                                    labels.begin() + run.position + run.count, data::kIgnoredLabel);
  }
  return 2 * own;
}
verify::Fault dividing_by_own_labels() {
  return hooked([](Rank rank) {
    auto calls = std::make_shared<std::int64_t>(0);
    return Hooks{.count = [rank, calls](std::int64_t, Inner) {
      return twice_own_labels(rank, std::min<std::int64_t>((*calls)++, 1));
    }};
  });
}

// Each of two context ranks makes labels of its own tokens: behind the last of a chunk comes the
// first of its other one.
class RolledLabels final : public data::TokenSource {
 public:
  explicit RolledLabels(const spec::Spec& spec)
      : tokens_(static_cast<std::uint64_t>(spec.train.seed), spec.model.vocab, true) {}
  void read(std::int64_t sample, std::span<std::int64_t> tokens,
            std::span<std::int64_t> labels) const override {
    tokens_.read(sample, tokens, labels);
    const std::size_t chunk = tokens.size() / 4;
    for (std::size_t i = 0; i < 4; ++i)
      if (std::int64_t& last = labels[(i + 1) * chunk - 1]; last != data::kIgnoredLabel)
        last = tokens[(3 - i) * chunk];
  }

 private:
  data::MockTokens tokens_;
};

const data::TokenSource& rolled_labels() {
  static const RolledLabels source(small_spec(false));
  return source;
}

// The exchange of keys in the backward pass of the last block brings a rank its own. Two blocks
// exchange once in F and twice in B, so it is the third of six.
verify::Fault reading_stale_keys() {
  verify::Fault fault;
  fault.wrap_world = [](comm::World& inner) {
    return std::make_unique<FaultyWorld>(
        inner, GroupPlan{.per_step = 6, .at = 2, .fault = GroupFault::kDrop});
  };
  return fault;
}

std::int64_t all_tokens(std::int64_t, Inner) {
  const spec::Batch batch = small_spec(false).batch;
  return batch.global_batch * batch.seq;
}

const Classic kClassics[] = {
    {"loss over local tokens", "torchtitan PR 2206", false, "dp2 zero0 m2 step",
     verify::FailureKind::kNumbers,
     [](P p) { return with_group(p, OpKind::kCount, CommGroup::kSelf); }},
    {"loss as mean of ranks' means", "Megatron-LM 4590", false, "dp2 zero0 m2 step",
     verify::FailureKind::kNumbers,
     [](P) { return counting([](std::int64_t, Inner w) { return 2 * w.valid_tokens(); }); }},
    {"loss over ignored tokens too", "Fast-LLM PR 426", false, "dp2 zero1 m2 step",
     verify::FailureKind::kNumbers, [](P) { return counting(all_tokens); }},
    {"clip by the norm of the own shard", "NeMo Automodel PR 3817", false, "dp2 zero1 m2 step",
     verify::FailureKind::kNumbers, [](P) { return clipping_alone(); }},
    {"clip by the norm of the own stage", "torchtitan 596", false, "pp2 dp1 zero0 1f1b m2 step",
     verify::FailureKind::kNumbers, [](P) { return clipping_alone(); }},
    {"norm of the own stage", "torchtitan 596", false, "pp2 dp2 zero1 1f1b m2 step",
     verify::FailureKind::kNumbers,
     [](P p) { return with_group(p, OpKind::kNorm, CommGroup::kData); }},
    {"tied weight twice in the norm", "Megatron-LM PR 7227", true, "dp2 zero0 m2 step",
     verify::FailureKind::kNumbers, [](P) { return tied_counted_twice_in_norm(); }},
    {"tied gradient counted twice", "", true, "pp2 dp2 zero1 1f1b m2 step",
     verify::FailureKind::kNumbers, [](P p) { return repeated(p, OpKind::kReduceTied, 2); }},
    {"tied gradient not reduced", "piper 13", true, "pp2 dp2 zero1 1f1b m2 step",
     verify::FailureKind::kNumbers, [](P p) { return repeated(p, OpKind::kReduceTied, 0); }},
    {"gradient not reduced", "torchtitan 1805", false, "dp2 zero0 m2 step",
     verify::FailureKind::kReplicas,
     [](P p) { return with_group(p, OpKind::kReduce, CommGroup::kSelf); }},
    {"gradient reduced over shards only", "", false, "dp2x2 zero2 m2 mb",
     verify::FailureKind::kReplicas,
     [](P p) { return with_group(p, OpKind::kReduceAcross, CommGroup::kSelf); }},
    {"gradient divided by the ranks once more", "", false, "dp2 zero0 m2 step",
     verify::FailureKind::kNumbers, [](P) { return scaling_reduced(0.5); }},
    {"gradient doubled", "pytorch 160285", false, "dp2 zero0 m2 step",
     verify::FailureKind::kNumbers, [](P) { return scaling_reduced(2.0); }},
    {"updated weights not gathered", "", false, "dp2 zero1 m2 step", verify::FailureKind::kNumbers,
     [](P p) { return repeated(p, OpKind::kAllGatherUpdated, 0); }},
    {"weights gathered once and kept over the update", "", false, "dp2 zero3 m2 mb",
     verify::FailureKind::kNumbers, [](P) { return gathering_once(); }},
    {"weights freed before backward reads them", "", false, "dp2 zero3 m2 mb",
     verify::FailureKind::kInvariant, freeing_before_backward},
    {"memory of weights reused before backward", "", false, "dp2 zero3 m2 mb",
     verify::FailureKind::kNumbers, [](P) { return reusing_memory_before_backward(); }},
    {"microbatch overwrites the gradient", "", false, "dp2 zero1 m2 step",
     verify::FailureKind::kNumbers, [](P) { return overwriting(); }},
    {"backward runs twice", "", false, "pp2 dp1 zero0 1f1b m4 step",
     verify::FailureKind::kInvariant, [](P p) { return repeated(p, OpKind::kBackward, 2); }},
    {"weight gradient drained twice", "", false, "pp2 dp1 zero0 1f1b m4 step",
     verify::FailureKind::kNumbers, [](P) { return draining_twice(); }},
    {"output of another microbatch received", "", false, "pp2 dp1 zero0 1f1b m2 step",
     verify::FailureKind::kNumbers, [](P) { return resending(ValueKind::kAct); }},
    {"gradient of another microbatch received", "", false, "pp2 dp1 zero0 1f1b m2 step",
     verify::FailureKind::kNumbers, [](P) { return resending(ValueKind::kGrad); }},
    {"recompute from another checkpoint", "", false, "dp2 zero1 m2 step recompute=full",
     verify::FailureKind::kNumbers, [](P) { return recomputing_from_another(); }},
    {"update counted twice", "", false, "dp2 zero1 m2 step", verify::FailureKind::kNumbers,
     [](P) { return counting_updates_twice(); }},
    {"norm gradients not reduced under sequence parallelism", "Megatron-LM 1446", false,
     "tp2 dp2 zero1 m2 step", verify::FailureKind::kReplicas,
     [](P p) { return repeated(p, OpKind::kReduceReplicated, 0); }},
    {"norm gradients summed that every tensor rank has whole", "", false,
     "tp2 dp1 zero0 m2 step nosp", verify::FailureKind::kNumbers, reducing_whole_gains},
    {"one norm's gradient not reduced under sequence parallelism", "", true,
     "tp2 dp1 zero0 m2 step", verify::FailureKind::kReplicas,
     [](P) { return reducing_all_gains_but_the_last(); }},
    {"norm gradients reduced over the data ranks", "", false, "tp2 dp2 zero0 m2 step",
     verify::FailureKind::kReplicas,
     [](P p) { return with_group(p, OpKind::kReduceReplicated, CommGroup::kData); }},
    {"replicated gradients twice in the norm", "", false, "tp2 dp1 zero0 m2 step",
     verify::FailureKind::kNumbers, [](P) { return replicated_counted_twice_in_norm(); }},
    {"gradients of shared key-value heads not added up", "", false, "tp4 dp1 zero0 m2 step",
     verify::FailureKind::kReplicas, [](P) { return keeping_copies_apart(); }},
    {"shared key-value heads twice in the norm", "", true, "tp4 dp2 zero1 m1 step nosp",
     verify::FailureKind::kNumbers, [](P) { return copies_counted_twice_in_norm(); }},
    {"norm of the own tensor rank", "", false, "tp2 dp1 zero0 m2 step nosp",
     verify::FailureKind::kReplicas,
     [](P p) { return with_group(p, OpKind::kNorm, CommGroup::kDataThenPipeline); }},
    {"tokens counted on every tensor rank", "", true, "tp2 dp2 zero1 m2 step",
     verify::FailureKind::kNumbers, [](P) { return tokens_counted_on_every_tensor_rank(); }},
    {"loss over tokens of every tensor rank", "", false, "tp2 dp1 zero0 m2 step",
     verify::FailureKind::kNumbers,
     [](P p) { return with_group(p, OpKind::kCount, CommGroup::kDataTensorPipeline); }},
    {"loss of one context rank under tensor parallelism", "torchtitan 3280", false,
     "tp2 cp2 dp1 zero0 m2 step", verify::FailureKind::kNumbers,
     [](P) { return showing_the_loss_of_one_context_rank(); }},
    {"loss as mean of context ranks' means", "Megatron-LM PR 7513", false, "cp2 dp1 zero0 m2 step",
     verify::FailureKind::kNumbers, [](P) { return dividing_by_own_labels(); }},
    {"labels rolled on every context rank", "verl PR 4250", false, "cp2 dp1 zero0 m2 step",
     verify::FailureKind::kNumbers, [](P) { return verify::Fault{.source = &rolled_labels()}; }},
    {"stale keys in the ring's backward pass", "diffusers 14265", false, "cp2 dp1 zero0 m1 step",
     verify::FailureKind::kNumbers, [](P) { return reading_stale_keys(); }},
    {"all data ranks read the same samples", "icefall 1616", false, "dp2 zero0 m2 step",
     verify::FailureKind::kNumbers, [](P) { return verify::Fault{.source = &same_samples()}; }},
};

TEST(Classics, AreAllNoticed) {
  int found = 0;
  for (const bool tied : {false, true}) {
    auto verifier = verify::Verifier::create(small_spec(tied), 2);
    ASSERT_TRUE(verifier.ok()) << verifier.error().message;
    for (const verify::StepImage& image : verifier->reference())
      ASSERT_GT(image.grad_norm, small_spec(tied).train.clip) << "clipping must matter";
    found += plant_all(*verifier, kClassics, tied);
  }
  std::cout << found << " of " << std::size(kClassics) << " classic faults noticed\n";
}

// One gradient of one rank is not a number in the second step. Nobody may update then, though most
// ranks hold only finite gradients; a rank that asks only itself does.
TEST(Classics, UpdateAlthoughAnotherRanksGradientIsNotFinite) {
  auto verifier = verify::Verifier::create(small_spec(false), 1);
  ASSERT_TRUE(verifier.ok()) << verifier.error().message;
  const auto layout = spec::parse_layout("dp2 zero1 m2 step");
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  const auto job = verifier->job(*layout);
  ASSERT_TRUE(job.ok()) << job.error().message;
  const data::MockTokens tokens(1234, job->model.config.vocab, true);
  const std::vector<verify::StepOrder> orders = {{0, nullptr}, {1, nullptr}};
  for (const bool asks_itself : {false, true}) {
    SCOPED_TRACE(asks_itself);
    verify::TrialOptions options;
    options.wrap = [&](exec::Workspace& inner, Rank rank) {
      auto updates = std::make_shared<int>(0);
      Hooks hooks = asks_itself ? own_norm() : Hooks{};
      hooks.compute = [updates, rank](const Op& op, const Effects& effects, Inner to) {
        to.compute(op, effects);
        if (op.kind == OpKind::kUpdate) ++*updates;
        if (op.kind == OpKind::kBackward && op.unit == 1 && *updates > 0 && rank.value == 1)
          numbers(to.buffer({ValueKind::kMainGrad, 1, 0}))[0] =
              std::numeric_limits<double>::quiet_NaN();
      };
      return std::make_unique<HookedWorkspace>(inner, std::move(hooks));
    };
    const verify::TrialResult trial =
        verify::run_trial(*job, tokens, orders, kClassicDeadline, options);
    const bool changed = trial.images[0].digest() != trial.images[1].digest();
    EXPECT_EQ(changed, asks_itself);
    EXPECT_TRUE(std::isnan(trial.images[1].grad_norm));
    for (const verify::RankRecord& rank : trial.ranks)
      EXPECT_EQ(rank.steps[1].report.updated, asks_itself && rank.rank.value == 1);
  }
}

}  // namespace
}  // namespace lockstep::train
