// Faults planted at every part of every pass of units, by kind of part: each is reported with the
// names of both ops. Collectives are calls of communicators (planted_test.cc).
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "lockstep/comm/local/local.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/nn/unit_runner.h"
#include "lockstep/tensor/as_buffer.h"
#include "lockstep/train/job.h"
#include "tests/glass/planted.h"
#include "tests/glass/race.h"
#include "tests/train/families.h"

namespace lockstep::nn {
namespace {

using glass::OpPlanter;
using glass::Planted;
using glass::Tallies;
using glass::Used;
using parts::Kind;
using parts::UnitPass;
using parts::ValueId;

// What touches no memory of its operands, or none at all.
bool is_idle(Kind kind) {
  return kind == Kind::kReserve || kind == Kind::kSplit || parts::row_of(kind).view;
}
// What is planted where collectives are begun or waited for is the affair of planted_test.cc.
bool is_of_collectives(Kind kind) { return parts::row_of(kind).collective || kind == Kind::kWait; }

// Runs passes as UnitRunner does, with faults at every part.
class PlantedRun {
 public:
  PlantedRun(const UnitRunner& runner, const PassInputs& inputs, OpPlanter* planter)
      : runner_(runner), inputs_(inputs), planter_(planter) {}

  at::Tensor run(UnitPass name, at::Tensor given, Kept& kept) {
    const parts::Pass& pass = runner_.passes().at(name);
    PassRun run(runner_.context(), runner_.passes(), pass, inputs_);
    for (auto& [storage, tensor] : kept) run.memory(storage) = std::move(tensor);
    kept.clear();
    if (given.defined()) run.memory(pass.storage(pass.given)) = std::move(given);
    const auto end = [&](const std::vector<ValueId>& storages) {
      for (const ValueId storage : storages) run.memory(storage).reset();
    };
    parts::for_each_part(
        pass, run.sizes,
        [&](std::size_t i, std::int64_t row) {
          const parts::Part& part = pass.parts[i];
          run.begin(part, row);
          const bool is_planted = planter_ != nullptr && !is_of_collectives(part.kind);
          if (is_planted)
            planter_->before(text(part, i), to_text(part.kind), used(pass, part, run),
                             tensors(pass.ends[i], run));
          kernel_of(part.kind, model::Kernels::kDevice)(run);
          end(pass.ends[i]);
          if (is_planted) planter_->behind(made(pass, part, run), is_idle(part.kind));
        },
        [&] { end(pass.repeat_ends); });
    at::Tensor result;
    if (pass.result != parts::kNoValue) result = std::move(run.memory(pass.storage(pass.result)));
    for (const ValueId id : pass.after)
      if (at::Tensor& tensor = run.memory(pass.storage(id)); tensor.defined())
        kept.emplace_back(pass.storage(id), std::move(tensor));
    return result;
  }

 private:
  static std::string text(const parts::Part& part, std::size_t i) {
    return std::string(to_text(part.kind)) + " " + std::string(part.param) + "#" +
           std::to_string(i);
  }
  // Names that no other has.
  std::vector<Used> tensors(const std::vector<ValueId>& storages, PassRun& run) const {
    std::vector<Used> all;
    for (const ValueId storage : std::set<ValueId>(storages.begin(), storages.end()))
      if (const at::Tensor& tensor = run.memory(storage); tensor.defined())
        all.push_back({std::string(runner_.passes().values()[storage].name) + "@" +
                           std::to_string(static_cast<int>(storage)),
                       tensor.view({-1})});
    return all;
  }
  std::vector<ValueId> storages(const parts::Pass& pass, const std::vector<ValueId>& ids) const {
    std::vector<ValueId> all;
    for (const ValueId id : ids) all.push_back(pass.storage(id));
    return all;
  }
  // Norms that are made again on a device make their statistics again, too.
  std::vector<Used> used(const parts::Pass& pass, const parts::Part& part, PassRun& run) {
    const bool is_again = part.kind == Kind::kRmsNormAgain || part.kind == Kind::kLayerNormAgain;
    return tensors(storages(pass, is_again ? std::vector{part.in[0]} : part.in), run);
  }
  std::vector<Used> made(const parts::Pass& pass, const parts::Part& part, PassRun& run) {
    std::vector<Used> all = tensors(storages(pass, part.out), run);
    if (writes_gradient(part)) all.push_back({"gradients", run.grads()});
    return all;
  }

  const UnitRunner& runner_;
  const PassInputs& inputs_;
  OpPlanter* const planter_;
};

// The passes of one unit, one behind the other as training has them.
void run_passes(const UnitRunner& runner, const PassInputs& inputs, const at::Tensor& rows,
                OpPlanter* planter) {
  const std::vector<std::vector<UnitPass>> chains = {
      {UnitPass::kForward, UnitPass::kBackward},
      {UnitPass::kForward, UnitPass::kFirstBackward},
      {UnitPass::kForward, UnitPass::kInputGrad, UnitPass::kWeightGrad},
      {UnitPass::kCheckpoint, UnitPass::kRecompute, UnitPass::kBackward},
      {UnitPass::kEvaluate}};
  PlantedRun run(runner, inputs, planter);
  for (const auto& chain : chains) {
    if (!std::ranges::all_of(chain, [&](UnitPass pass) { return runner.passes().has(pass); }))
      continue;
    Kept kept;
    for (const UnitPass pass : chain) {
      const bool takes = runner.passes().at(pass).given != parts::kNoValue;
      run.run(pass, takes ? rows.clone() : at::Tensor(), kept);
    }
  }
}

// What the ranks of a world share: units, or sequences.
struct Ways {
  int tp = 1, cp = 1;
  model::CpMethod context = model::CpMethod::kRing;
};

// On one of the ranks; those beside it, whose `tallies` are absent, only take part.
void plant_in_passes(const spec::Spec& spec, const Ways& ways, comm::World& world, Planted kind,
                     Tallies* tallies) {
  const at::Device device = tensor::torch_device_of(world.device());
  const Deadline deadline = Deadline::after(Seconds{60});
  std::vector<Rank> ranks;
  for (int i = 0; i < world.size(); ++i) ranks.push_back(Rank{i});
  const auto all = world.connect_device("all", "all", ranks, deadline);
  const TensorGroup group =
      ways.tp > 1 ? TensorGroup(*all, /*sequence_parallel=*/false, Seconds{60}) : TensorGroup();
  const ContextGroup context = ways.cp > 1 ? ContextGroup(*all, Seconds{60}) : ContextGroup();
  const train::Job job = train::make_job(spec).value();
  const model::Model& model = job.model;
  const auto flats = model::flat_layouts(model, ways.tp);
  const at::ScalarType type = tensor::scalar_type_of(spec.train.dtype);
  const at::ScalarType wide = tensor::scalar_type_of(wide_type(spec.train.dtype));
  model::UnitSizes sizes = job.workspace.unit;
  sizes.batch = 2, sizes.seq = 12, sizes.head_chunk = 5;
  sizes.tp = ways.tp, sizes.cp = ways.cp, sizes.context = ways.context;
  sizes.drop = {.attn_normed = true, .product = true};
  const Rope rope(model.config, sizes.seq, type, device);
  const at::Tensor rows = at::randn({sizes.tokens(), model.config.hidden}).to(type).to(device);
  const at::Tensor tokens =
      at::randint(model.config.vocab, {sizes.batch, sizes.seq}, at::kLong).to(device);
  const at::Tensor words = at::full({ExactSum::kNumWords}, 0, at::kLong).to(device);
  std::optional<OpPlanter> planter;
  if (tallies != nullptr) planter.emplace(kind, device, *tallies);
  for (std::size_t unit = 0; unit < model.distinct.size(); ++unit) {
    const std::int64_t numel = flats[unit].padded(1);
    const at::Tensor params = at::full({numel}, 0.1).to(type).to(device);
    const at::Tensor grads = at::full({numel}, 0.0).to(wide).to(device);
    ExactSum loss;
    const PassInputs inputs = {.params = params,
                               .grads = [&] { return grads; },
                               .tokens = tokens,
                               .labels = tokens,
                               .loss = &loss,
                               .loss_words = words};
    const UnitRunner runner(model.config, model.distinct[unit], flats[unit], sizes, &rope, group,
                            context);
    run_passes(runner, inputs, rows, planter ? &*planter : nullptr);
  }
  glass::Race::say_what_runs("");
}

constexpr Ways kWays[] = {{},
                          {.tp = 2},
                          {.cp = 2},
                          {.cp = 2, .context = model::CpMethod::kGather},
                          {.cp = 2, .context = model::CpMethod::kUlysses}};

class PlantedInParts : public testing::TestWithParam<Planted> {};

TEST_P(PlantedInParts, AreReportedWithTheNamesOfBoth) {
  Tallies tallies;
  std::vector<spec::Spec> specs = train::family_specs();
  specs.push_back(train::tiny_spec(/*tied=*/false, DType::kF64));
  for (spec::Spec& spec : specs)
    for (const DType dtype : {DType::kF64, DType::kBF16})
      for (const Ways& ways : kWays) {
        // Parts of context groups are the same in every family, but for capped scores.
        if (ways.cp > 1 && &spec != &specs.back() && spec.model.attention_softcap == 0) continue;
        SCOPED_TRACE(spec.model.name + " " + std::string(to_text(dtype)));
        spec.train.dtype = dtype;
        spec.device = DeviceKind::kCuda;
        const comm::WorldWrap wires = glass::new_tested_wires();
        glass::race().take_reports();
        comm::run_local(ways.tp * ways.cp, [&](comm::World& host) {
          const auto world = wires(host);
          plant_in_passes(spec, ways, *world, GetParam(),
                          host.rank().value == 0 ? &tallies : nullptr);
        });
      }
  expect_all_seen(tallies);
}

INSTANTIATE_TEST_SUITE_P(Every, PlantedInParts,
                         testing::Values(Planted::kHostRead, Planted::kMissingWait,
                                         Planted::kMissingWaitBack, Planted::kEarlyFree),
                         [](const auto& tested) {
                           std::string name(to_text(tested.param));
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::nn
