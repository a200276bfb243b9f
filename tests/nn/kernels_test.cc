// Every kernel, part by part: it takes what its row of parts/kernels.h says, and changes nothing
// but its outputs.
#include "lockstep/nn/kernels.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "lockstep/comm/local/local.h"
#include "lockstep/nn/unit_runner.h"
#include "lockstep/parts/kernels.h"
#include "lockstep/tensor/as_buffer.h"
#include "lockstep/tensor/memory.h"
#include "tests/nn/sharded.h"
#include "tests/nn/unit_layouts.h"

namespace lockstep::nn {
namespace {

using parts::UnitPass;
using parts::ValueId;
using tensor::ChargeTo;
using tensor::MemoryAccount;

bool same_buffers(const at::Tensor& a, const at::Tensor& b) {
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// Runs passes as UnitRunner does, and looks at memory around every kernel.
class Watched {
 public:
  Watched(const UnitRunner& runner, const PassInputs& inputs, bool exact)
      : runner_(runner), inputs_(inputs), exact_(exact) {}

  at::Tensor run(UnitPass name, at::Tensor given, Kept& kept) {
    const parts::Pass& pass = runner_.passes().at(name);
    PassRun run(runner_.context(), runner_.passes(), pass, inputs_);
    for (auto& [storage, tensor] : kept) run.memory(storage) = std::move(tensor);
    kept.clear();
    if (given.defined()) run.memory(pass.storage(pass.given)) = std::move(given);
    const ChargeTo charge(account_);
    const auto end = [&](const std::vector<ValueId>& storages) {
      for (const ValueId storage : storages) run.memory(storage).reset();
    };
    for_each_part(
        pass, run.sizes,
        [&](std::size_t i, std::int64_t row) {
          run.begin(pass.parts[i], row);
          part(pass, pass.parts[i], run);
          end(pass.ends[i]);
        },
        [&] { end(pass.repeat_ends); });
    at::Tensor result;
    if (pass.result != parts::kNoValue) result = std::move(run.memory(pass.storage(pass.result)));
    for (const ValueId id : pass.after)
      if (at::Tensor& tensor = run.memory(pass.storage(id)); tensor.defined())
        kept.emplace_back(pass.storage(id), std::move(tensor));
    return result;
  }

  std::set<parts::Kind> seen;

 private:
  void part(const parts::Pass& pass, const parts::Part& part, PassRun& run) {
    SCOPED_TRACE(std::string(to_text(part.kind)) + " " + std::string(part.param));
    seen.insert(part.kind);
    std::set<ValueId> changed;
    for (const ValueId id : part.out) changed.insert(pass.storage(id));
    if (row_of(part.kind).spoils) changed.insert(pass.storage(part.in[0]));
    if (row_of(part.kind).collective) under_way_.insert(pass.storage(part.out[0]));
    changed.insert(under_way_.begin(), under_way_.end());
    if (part.kind == parts::Kind::kWait) under_way_.erase(pass.storage(part.in[0]));
    std::map<ValueId, at::Tensor> before;
    for (std::size_t id = 0; id < runner_.passes().values().size(); ++id) {
      const auto storage = static_cast<ValueId>(id);
      const ChargeTo aside(copies_);
      if (run.memory(storage).defined()) before[storage] = run.memory(storage).clone();
    }
    // Only the first rank adds losses up.
    const bool idle = part.kind == parts::Kind::kAddLosses && runner_.context().group.index() > 0;
    const std::int64_t live = account_.live();
    account_.reset_peak();
    kernel_of(part.kind, model::Kernels::kCpu)(run);
    const std::int64_t took = account_.peak() - live;
    // Behind the kernel, which may have learned how many rows other ranks send.
    const std::int64_t most = idle ? 0 : predicted(pass, part, run, before);
    EXPECT_TRUE(!exact_ || took == most) << took << ", not " << most;
    for (const auto& [storage, was] : before)
      EXPECT_TRUE(changed.contains(storage) || same_buffers(was, run.memory(storage)))
          << runner_.passes().values()[storage].name;
  }

  std::int64_t predicted(const parts::Pass& pass, const parts::Part& part, const PassRun& run,
                         const std::map<ValueId, at::Tensor>& before) const {
    const parts::Values& values = runner_.passes().values();
    std::set<ValueId> taken;
    std::int64_t live = 0, most = 0;
    for (const parts::Step& step : kernel_steps(part, pass, values, run.sizes)) {
      if (step.what == parts::Step::kOutput) {
        const ValueId storage = pass.storage(part.out[step.output]);
        if (!before.contains(storage) && taken.insert(storage).second)
          live += run.sizes.bytes(values[storage]);
      } else {
        live += step.what == parts::Step::kTake ? step.bytes : -step.bytes;
      }
      most = std::max(most, live);
    }
    return most;
  }

  const UnitRunner& runner_;
  const PassInputs& inputs_;
  const bool exact_;  // else products take scratch that no row tells of
  MemoryAccount account_, copies_;
  std::set<ValueId> under_way_;  // storages that collectives write
};

// All passes of a unit; returns the kinds that ran. `path`: makes what units hand on.
std::set<parts::Kind> run_chains(const UnitRunner& runner, int unit, const PassInputs& inputs,
                                 at::ScalarType type, const std::function<at::Tensor()>& path) {
  Watched watched(runner, inputs, type != at::kBFloat16);
  std::vector<std::vector<UnitPass>> chains = {{UnitPass::kForward, UnitPass::kBackward},
                                               {UnitPass::kEvaluate}};
  if (unit != kHead) {
    chains.push_back({UnitPass::kForward, UnitPass::kFirstBackward});
    chains.push_back({UnitPass::kForward, UnitPass::kInputGrad, UnitPass::kWeightGrad});
  }
  if (unit == kBlock)
    chains.push_back({UnitPass::kCheckpoint, UnitPass::kRecompute, UnitPass::kBackward});
  for (const auto& chain : chains) {
    Kept kept;
    for (const UnitPass pass : chain) {
      SCOPED_TRACE(std::string(parts::kUnitPasses.name_of(pass)));
      const bool takes = runner.passes().at(pass).given != parts::kNoValue;
      watched.run(pass, takes ? path() : at::Tensor(), kept);
    }
    EXPECT_TRUE(kept.empty());
  }
  return watched.seen;
}

// All passes of all units on one rank of `ways`; returns the kinds that ran.
std::set<parts::Kind> run_all(const Shape& shape, const Ways& ways, at::ScalarType type) {
  const Tiny tiny(shape);
  const Sharded sharded(tiny, ways);
  const Rope rope(tiny.config(), shape.seq, type, at::kCPU);
  const at::Tensor rows = random("rows", {shape.tokens(), shape.hidden}, type);
  const at::Tensor tokens = random_labels(shape), labels = random_labels(shape, 3);
  std::set<parts::Kind> seen;
  on_ranks(ways, [&](const TensorGroup& group, comm::Ledger&) {
    for (const int unit : {kEmbed, kBlock, kHead}) {
      const at::Tensor params = sharded.cut(unit, random_params(tiny, unit, type), group.index());
      const at::Tensor grads =
          at::full({params.numel()}, 0.0, type == at::kBFloat16 ? at::kFloat : type);
      ExactSum loss;
      const double coeff = shape.kin == Kin::kMixtral || shape.kin == Kin::kDots1 ? 0.1 : 0.0;
      const PassInputs inputs = {.params = params,
                                 .grads = [&] { return grads; },
                                 .tokens = tokens,
                                 .labels = labels,
                                 .loss = &loss,
                                 .router_bias = router_bias(tiny.config())};
      const UnitRunner runner(tiny.config(), tiny.unit(unit), sharded.flat(unit),
                              {.batch = shape.batch,
                               .seq = shape.seq,
                               .dtype = tensor::dtype_of(type),
                               .drop = {.attn_normed = true, .product = true},
                               .head_chunk = 5,
                               .tp = ways.tp,
                               .sequence_parallel = ways.sp,
                               .aux_loss_coeff = coeff,
                               .z_loss_coeff = coeff},
                              &rope, group);
      const auto ran =
          run_chains(runner, unit, inputs, type, [&] { return sharded.path(rows, group.index()); });
      if (group.index() == 0) seen.insert(ran.begin(), ran.end());
    }
  });
  return seen;
}

// The passes of a block on the ranks of a context group; the kinds that ran.
std::set<parts::Kind> run_context(const Shape& shape, int cp, model::CpMethod context,
                                  at::ScalarType type) {
  const Tiny tiny(shape);
  const Rope rope(tiny.config(), shape.seq / cp, type, at::kCPU);
  const at::Tensor params = random_params(tiny, kBlock, type);
  const at::Tensor rows = random("rows", {shape.tokens() / cp, shape.hidden}, type);
  std::set<parts::Kind> seen;
  comm::run_local(cp, [&](comm::World& world) {
    const auto comm = world.connect_all("cp", "cp", Deadline::after(Seconds{60}));
    const ContextGroup group(*comm, Seconds{60});
    const at::Tensor grads =
        at::full({params.numel()}, 0.0, type == at::kBFloat16 ? at::kFloat : type);
    const PassInputs inputs = {.params = params, .grads = [&] { return grads; }};
    const UnitRunner runner(tiny.config(), tiny.unit(kBlock), tiny.flat(kBlock),
                            {.batch = shape.batch,
                             .seq = shape.seq / cp,
                             .dtype = tensor::dtype_of(type),
                             .cp = cp,
                             .context = context},
                            &rope, {}, group);
    const auto ran = run_chains(runner, kBlock, inputs, type, [&] { return rows.clone(); });
    if (group.index() == 0) seen = ran;
  });
  return seen;
}

// The passes of a block on ranks that share experts; the kinds that ran.
std::set<parts::Kind> run_experts(const Shape& shape, int ep, at::ScalarType type) {
  const Tiny tiny(shape);
  const std::vector<model::FlatLayout> flats = model::flat_layouts(tiny.model, 1, ep);
  const model::FlatLayout& own = flats[kBlock];
  const model::FlatLayout& experts = flats[tiny.model.distinct.size() + kBlock];
  const Rope rope(tiny.config(), shape.seq, type, at::kCPU);
  std::set<parts::Kind> seen;
  comm::run_local(ep, [&](comm::World& world) {
    const auto comm = world.connect_all("ep", "ep", Deadline::after(Seconds{60}));
    const std::string rank = std::to_string(comm->index());
    const auto zeros = [&](const model::FlatLayout& flat) {
      return at::full({flat.size}, 0.0, type == at::kBFloat16 ? at::kFloat : type);
    };
    const UnitBuffers grads = {zeros(own), zeros(experts)};
    const PassInputs inputs = {
        .params = {random("own", {own.size}, type), random("of " + rank, {experts.size}, type)},
        .grads = [&] { return grads; }};
    const UnitRunner runner(
        tiny.config(), tiny.unit(kBlock), UnitPlace(own, &experts),
        {.batch = shape.batch, .seq = shape.seq, .dtype = tensor::dtype_of(type), .ep = ep}, &rope,
        {}, {}, {*comm, Seconds{60}});
    const at::Tensor rows = random("rows " + rank, {shape.tokens(), shape.hidden}, type);
    const auto ran = run_chains(runner, kBlock, inputs, type, [&] { return rows.clone(); });
    if (comm->index() == 0) seen = ran;
  });
  return seen;
}

// A block whose tokens continue a sequence. What attention takes depends on the keys behind it, and
// is in no row.
std::set<parts::Kind> run_cached(Shape shape, at::ScalarType type) {
  shape.batch = 1;
  const Tiny tiny(shape);
  const Rope rope(tiny.config(), 2 * shape.seq, type, at::kCPU);
  const std::int64_t columns = 2 * tiny.config().kv_heads * tiny.config().head_dim;
  const PassInputs inputs = {.params = random_params(tiny, kBlock, type),
                             .past = shape.seq,
                             .cached_keys = random("keys", {2 * shape.seq, columns}, type)};
  const UnitRunner runner(tiny.config(), tiny.unit(kBlock), tiny.flat(kBlock),
                          {.seq = shape.seq, .dtype = tensor::dtype_of(type), .caches_keys = true},
                          &rope);
  Watched watched(runner, inputs, /*exact=*/false);
  Kept none;
  watched.run(UnitPass::kGenerate, random("rows", {shape.tokens(), shape.hidden}, type), none);
  EXPECT_TRUE(none.empty());
  return watched.seen;
}

TEST(Kernels, TakeWhatTheirRowsSayAndChangeOnlyTheirOutputs) {
  const Shape shape = {.batch = 2, .seq = 12, .hidden = 32, .heads = 4, .kv_heads = 2, .vocab = 24};
  std::set<parts::Kind> seen;
  for (const Kin kin : {Kin::kLlama, Kin::kGpt2, Kin::kQwen3, Kin::kOlmo2, Kin::kGemma2,
                        Kin::kMixtral, Kin::kOlmoe, Kin::kQwen2Moe, Kin::kDots1})
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16})
      for (const Ways& ways : {Ways{1, false}, Ways{2, false}, Ways{2, true}}) {
        SCOPED_TRACE(ways.text() + " " + toString(type));
        Shape of = shape;
        seen.merge(run_all(of.as(kin), ways, type));
      }
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16})
    for (const model::CpMethod context : model::kCpMethods) {
      SCOPED_TRACE(std::string(to_text(context)) + " " + toString(type));
      const bool deals = context == model::CpMethod::kUlysses;
      seen.merge(run_context(shape, deals ? 2 : 3, context, type));
      if (deals) seen.merge(run_context(shape.as(Kin::kGemma2), 2, context, type));
    }
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    Shape cached = shape;
    seen.merge(run_cached(cached.as(Kin::kGemma2), type));
  }
  Shape shared = shape.as(Kin::kMixtral);
  shared.experts = 6;
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16})
    seen.merge(run_experts(shared, 3, type));
  std::string missing;
  for (std::size_t i = 0; i <= static_cast<std::size_t>(parts::Kind::kLogitsGrad); ++i) {
    const auto kind = static_cast<parts::Kind>(i);
    // Lowered to collectives, or to nothing.
    if (kind == parts::Kind::kGatherRows || kind == parts::Kind::kReduceRows ||
        kind == parts::Kind::kSumRanks || kind == parts::Kind::kAuxLoss ||
        kind == parts::Kind::kZLoss)
      continue;
    if (!seen.contains(kind)) missing += std::string(to_text(kind)) + " ";
  }
  EXPECT_EQ(missing, "");
}

}  // namespace
}  // namespace lockstep::nn
