// Every kernel of a device, part by part, takes what its row of parts/kernels.h says.
#include "lockstep/nn/kernels.h"

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "lockstep/comm/local/local.h"
#include "lockstep/parts/kernels.h"
#include "lockstep/train/job.h"
#include "tests/glass/backend.h"
#include "tests/glass/device.h"
#include "tests/glass/unit_rig.h"
#include "tests/nn/unit_layouts.h"
#include "tests/train/families.h"

namespace lockstep::nn {
namespace {

using parts::UnitPass;
using parts::ValueId;

constexpr std::size_t kBlock = 1;  // of model::Model::distinct

c10::DeviceAllocator& device_allocator() { return *c10::getDeviceAllocator(glass::kDevice); }
c10::CachingDeviceAllocator::Stat taken(c10::DeviceIndex device) {
  return device_allocator().getDeviceStats(device).requested_bytes[0];
}

// Most bytes that the part takes beside what lives before it, where outputs may have memory.
std::int64_t predicted(const UnitRunner& runner, const parts::Pass& pass, const parts::Part& part,
                       const parts::Sizes& sizes, const std::set<ValueId>& have_memory) {
  const parts::Values& values = runner.passes().values();
  std::set<ValueId> made;
  std::int64_t live = 0, most = 0;
  for (const parts::Step& step : kernel_steps(part, pass, values, sizes)) {
    if (step.what == parts::Step::kOutput) {
      const ValueId storage = pass.storage(part.out[step.output]);
      if (!have_memory.contains(storage) && made.insert(storage).second)
        live += sizes.bytes(values[storage]);
    } else {
      live += step.what == parts::Step::kTake ? step.bytes : -step.bytes;
    }
    most = std::max(most, live);
  }
  return most;
}

void expect_predicted(const UnitRunner& runner, const PassInputs& inputs, const at::Tensor& rows) {
  const c10::DeviceIndex device = rows.device().index();
  std::int64_t met = 0;  // learned by the first exchange of a chain of passes
  run_chains(runner, rows, [&](UnitPass name, at::Tensor given, Kept& kept) {
    std::int64_t before = 0;
    std::set<ValueId> have_memory;
    run_parts(
        runner, inputs, name, std::move(given), kept,
        [&](const parts::Pass& pass, std::size_t i, PassRun& run) {
          have_memory.clear();
          for (const ValueId id : pass.parts[i].out)
            if (run.memory(pass.storage(id)).defined()) have_memory.insert(pass.storage(id));
          before = taken(device).current;
          device_allocator().resetPeakStats(device);
        },
        [&](const parts::Pass& pass, std::size_t i, PassRun& run) {
          const std::int64_t took = taken(device).peak - before;
          if (pass.parts[i].kind == parts::Kind::kDispatch) met = run.sizes[parts::Dim::kMet];
          parts::Sizes sizes = run.sizes;
          sizes[parts::Dim::kMet] = met;
          EXPECT_EQ(took, predicted(runner, pass, pass.parts[i], sizes, have_memory))
              << parts::kUnitPasses.name_of(name) << ": " << to_text(pass.parts[i].kind) << " "
              << pass.parts[i].param;
        });
  });
}

TEST(DeviceKernels, TakeWhatTheirRowsSay) {
  for (spec::Spec spec : train::family_specs())
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
      SCOPED_TRACE(spec.model.name + " " + std::string(to_text(dtype)));
      spec.train.dtype = dtype;
      spec.device = DeviceKind::kCuda;
      const glass::Wires wires;
      comm::run_local(1, [&](comm::World& host) {
        const auto world = wires.join(host);
        for_each_unit(spec, {}, *world, expect_predicted);
      });
    }
}

TEST(DeviceKernels, TakeWhatTheirRowsSayOfRowsThatOthersSend) {
  for (spec::Spec spec : {train::mixtral_spec(), train::dots1_spec()})
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
      SCOPED_TRACE(spec.model.name + " " + std::string(to_text(dtype)));
      spec.train.dtype = dtype;
      spec.device = DeviceKind::kCuda;
      spec.model.moe.experts = 8;
      const glass::Wires wires;
      comm::run_local(2, [&](comm::World& host) {
        const auto world = wires.join(host);
        for_each_unit(spec, {.ep = 2}, *world, expect_predicted);
      });
    }
}

// Gradients of a block, twice added up, what it hands on and its input's gradient, on CPU tensors.
std::vector<at::Tensor> train_block(spec::Spec spec, DeviceKind device, const at::Tensor& params,
                                    const at::Tensor& rows) {
  spec.device = device;
  const train::Job job = train::make_job(spec).value();
  model::UnitSizes sizes = job.workspace.unit;
  sizes.batch = 2, sizes.seq = 12;
  const Rope rope(job.model.config, sizes.seq, at::kDouble, at::kCPU);
  const at::Tensor grads = at::full({params.numel()}, 0.0, at::kDouble);
  PassInputs inputs = {.params = params, .grads = [&] { return grads; }};
  inputs.router_bias = router_bias(job.model.config);
  const UnitRunner runner(job.model.config, job.model.distinct[kBlock],
                          unit_layouts(job.model)[kBlock], sizes, &rope);
  std::vector<at::Tensor> made = {grads};
  for (const bool is_first : {true, false}) {
    inputs.is_first = is_first;
    Kept kept;
    const at::Tensor out = runner.run(UnitPass::kForward, rows.clone(), kept, inputs);
    made.push_back(out.clone());
    made.push_back(runner.run(UnitPass::kBackward, out, kept, inputs));
  }
  return made;
}

// Where scores are equal every token is sent to the same few experts, and none to the others.
TEST(DeviceKernels, ComputeWhatTheCpusDoWhereverTokensAreSent) {
  spec::Spec many = train::olmoe_spec();
  many.model.moe.experts = 12;
  for (const spec::Spec& spec :
       {train::mixtral_spec(), train::olmoe_spec(), train::dots1_spec(), many})
    for (const bool are_equal : {false, true}) {
      SCOPED_TRACE(spec.model.name + (are_equal ? ", equal scores" : ""));
      const model::Model model = model::describe(spec.model).value();
      const model::FlatLayout flat = unit_layouts(model)[kBlock];
      const at::Tensor params = at::randn({flat.padded(1)}, at::kDouble).mul_(0.3);
      for (const model::FlatParam& param : flat.params)
        if (are_equal && model.distinct[kBlock].params[param.param].role == model::Role::kRouter)
          params.narrow(0, param.offset, param.numel).zero_();
      const at::Tensor rows = at::randn({24, spec.model.hidden}, at::kDouble);
      const auto wanted = train_block(spec, DeviceKind::kCpu, params, rows);
      const auto got = train_block(spec, DeviceKind::kCuda, params, rows);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const double greatest = wanted[i].abs().max().item<double>();
        EXPECT_LE(got[i].sub(wanted[i]).abs().max().item<double>(), 1e-12 * greatest) << i;
        EXPECT_EQ(got[i].masked_select(wanted[i].eq(0)).ne(0).sum().item<std::int64_t>(), 0) << i;
      }
    }
}

}  // namespace
}  // namespace lockstep::nn
