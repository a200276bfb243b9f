#include "tests/glass/unit_rig.h"

#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/nn/kernels.h"
#include "lockstep/tensor/as_buffer.h"
#include "lockstep/train/job.h"
#include "tests/nn/unit_layouts.h"

namespace lockstep::nn {

void run_parts(const UnitRunner& runner, const PassInputs& inputs, parts::UnitPass name,
               at::Tensor given, Kept& kept, const AroundPart& before, const AroundPart& behind) {
  const parts::Pass& pass = runner.passes().at(name);
  PassRun run(runner.context(), runner.passes(), pass, inputs);
  for (auto& [storage, tensor] : kept) run.memory(storage) = std::move(tensor);
  kept.clear();
  if (given.defined()) run.memory(pass.storage(pass.given)) = std::move(given);
  const auto end = [&](const std::vector<parts::ValueId>& storages) {
    for (const parts::ValueId storage : storages) run.memory(storage).reset();
  };
  parts::for_each_part(
      pass, run.sizes,
      [&](std::size_t i, std::int64_t row) {
        run.begin(pass.parts[i], row);
        before(pass, i, run);
        kernel_of(pass.parts[i].kind, model::Kernels::kDevice)(run);
        end(pass.ends[i]);
        behind(pass, i, run);
      },
      [&] { end(pass.repeat_ends); });
  if (pass.result != parts::kNoValue) run.memory(pass.storage(pass.result)).reset();
  for (const parts::ValueId id : pass.after)
    if (at::Tensor& tensor = run.memory(pass.storage(id)); tensor.defined())
      kept.emplace_back(pass.storage(id), std::move(tensor));
}

void run_chains(const UnitRunner& runner, const at::Tensor& rows, const RunPass& run_pass) {
  using parts::UnitPass;
  const std::vector<std::vector<UnitPass>> chains = {
      {UnitPass::kForward, UnitPass::kBackward},
      {UnitPass::kForward, UnitPass::kFirstBackward},
      {UnitPass::kForward, UnitPass::kInputGrad, UnitPass::kWeightGrad},
      {UnitPass::kCheckpoint, UnitPass::kRecompute, UnitPass::kBackward},
      {UnitPass::kEvaluate}};
  for (const auto& chain : chains) {
    if (!std::ranges::all_of(chain, [&](UnitPass pass) { return runner.passes().has(pass); }))
      continue;
    Kept kept;
    for (const UnitPass pass : chain) {
      const bool takes = runner.passes().at(pass).given != parts::kNoValue;
      run_pass(pass, takes ? rows.clone() : at::Tensor(), kept);
    }
  }
}

void for_each_unit(const spec::Spec& spec, const Ways& ways, comm::World& world,
                   const WithUnit& body) {
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
  const auto flats =
      ways.ep > 1 ? model::flat_layouts(model, 1, ways.ep) : unit_layouts(model, ways.tp);
  const ExpertGroup shared = ways.ep > 1 ? ExpertGroup(*all, Seconds{60}) : ExpertGroup();
  const at::ScalarType type = tensor::scalar_type_of(spec.train.dtype);
  const at::ScalarType wide = tensor::scalar_type_of(wide_type(spec.train.dtype));
  model::UnitSizes sizes = job.workspace.unit;
  sizes.batch = 2, sizes.seq = 12, sizes.head_chunk = 5;
  sizes.tp = ways.tp, sizes.cp = ways.cp, sizes.context = ways.context, sizes.ep = ways.ep;
  sizes.etp.reset();  // tensor ranks share every expert
  sizes.drop = {.attn_normed = true, .product = true};
  const Rope rope(model.config, sizes.seq, type, device);
  const at::Tensor rows = at::randn({sizes.tokens(), model.config.hidden}).to(type).to(device);
  const at::Tensor tokens =
      at::randint(model.config.vocab, {sizes.batch, sizes.seq}, at::kLong).to(device);
  const at::Tensor words = at::full({ExactSum::kNumWords}, 0, at::kLong).to(device);
  for (std::size_t unit = 0; unit < model.distinct.size(); ++unit) {
    const bool cuts = ways.ep > 1 && model.distinct[unit].has_experts();
    const model::FlatLayout* experts = cuts ? &flats[model.distinct.size() + unit] : nullptr;
    const auto filled = [&](double scale, at::ScalarType as) {
      const auto of = [&](const model::FlatLayout& flat) {
        return at::randn({flat.padded(1)}).mul_(scale).to(as).to(device);
      };
      return UnitBuffers(of(flats[unit]), cuts ? of(*experts) : at::Tensor());
    };
    const UnitBuffers params = filled(0.1, type), grads = filled(0.0, wide);
    ExactSum loss;
    PassInputs inputs;
    inputs.params = params;
    inputs.grads = [&] { return grads; };
    inputs.tokens = inputs.labels = tokens;
    inputs.loss = &loss;
    inputs.loss_words = words;
    inputs.router_bias = router_bias(model.config);
    if (inputs.router_bias.defined()) inputs.router_bias = inputs.router_bias.to(device);
    body(UnitRunner(model.config, model.distinct[unit], UnitPlace(flats[unit], experts), sizes,
                    &rope, group, context, shared),
         inputs, rows);
  }
}

}  // namespace lockstep::nn
