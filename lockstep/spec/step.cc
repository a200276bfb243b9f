#include "lockstep/spec/step.h"

#include <algorithm>

#include "lockstep/model/flat_layout.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/pipeline/layer_split.h"
#include "lockstep/program/lower.h"

namespace lockstep::spec {
namespace {

// Each rank of the tensor group sees its part of the tokens between the tensor-parallel parts, so
// what it finds for a parameter that all of them hold is a summand (Korthikanti et al., arXiv
// 2205.05198). Without sequence parallelism it has its heads alone, so the same holds of what every
// head uses, and of keys and values that several ranks hold because they outnumber them.
std::vector<bool> partial_units(const model::Model& model, std::int64_t tp,
                                bool sequence_parallel) {
  const auto is_partial = [&](const model::Param& p) {
    return p.trained &&
           ((p.sharded.empty() && (sequence_parallel || p.over_heads)) || model::copies(p, tp) > 1);
  };
  std::vector<bool> units;
  for (int i = 0; i < model.num_units(); ++i)
    units.push_back(std::ranges::any_of(model.unit(i).params, is_partial));
  if (std::ranges::find(units, true) == units.end()) units.clear();
  return units;
}

}  // namespace

std::vector<int> stage_layers(const Layout& layout, std::int64_t layers) {
  if (!layout.layers.empty()) return layout.layers;
  return pipeline::default_layer_split(static_cast<int>(layers),
                                       static_cast<int>(layout.degrees.pp) * layout.chunks);
}

std::vector<bool> recomputed_units(const std::vector<std::int32_t>& stage_begin,
                                   const std::vector<int>& blocks) {
  const int head = stage_begin.back() - 1;
  std::vector<bool> units;
  for (std::size_t stage = 0; stage + 1 < stage_begin.size(); ++stage) {
    int left = blocks.empty() ? head : blocks[stage];
    for (int i = stage_begin[stage]; i < stage_begin[stage + 1]; ++i)
      units.push_back(i > 0 && i < head && left-- > 0);
  }
  return units;
}

program::StepShape step_shape(const model::Model& model, const Layout& layout, const Batch& batch) {
  const mesh::Degrees& d = layout.degrees;
  program::StepShape step;
  step.shape = {.coords = static_cast<int>(d.pp),
                .chunks = layout.chunks,
                .microbatches = static_cast<int>(num_microbatches(layout, batch))};
  step.stage_begin = program::first_units(stage_layers(layout, model.num_units() - 2));
  step.zero = layout.zero;
  step.period = layout.reduce;
  step.replicas = d.dp_shard.value_or(d.dp) < d.dp;
  step.tied = model.config.tied;
  if (layout.recompute.drop.block)
    step.recompute = recomputed_units(step.stage_begin, layout.recompute.blocks);
  step.resident_units = layout.resident.value_or(1);
  step.prefetch = layout.prefetch.value_or(1);
  step.tensor_parallel = d.tp > 1;
  if (d.tp > 1) step.partial = partial_units(model, d.tp, layout.sp);
  if (model.config.moe.experts > 0)
    for (int unit = 0; unit < model.num_units(); ++unit)
      step.experts.push_back(model.unit(unit).has_experts());
  step.routed = static_cast<int>(model.config.moe.experts);
  return step;
}

Result<program::Program> program_for(const model::Model& model, const Layout& layout,
                                     const Batch& batch) {
  return program_for(layout, step_shape(model, layout, batch));
}

Result<program::Program> program_for(const Layout& layout, const program::StepShape& step) {
  const auto row = pipeline::find(layout.schedule);
  if (!row.ok()) return row.error();
  const auto timetable = row->build(step.shape);
  if (!timetable.ok()) return timetable.error();
  return program::lower(*timetable, step);
}

cost::StepSizes step_sizes(const Spec& spec) {
  const mesh::Degrees& degrees = spec.layout.degrees;
  cost::StepSizes sizes;
  sizes.unit.batch = spec.batch.microbatch;
  sizes.unit.seq = spec.batch.seq / degrees.cp;
  sizes.unit.cp = degrees.cp;
  sizes.unit.context = spec.layout.context;
  sizes.unit.dtype = spec.train.dtype;
  sizes.unit.drop = spec.layout.recompute.drop.rest();
  sizes.unit.head_chunk = spec.train.head_chunk;
  sizes.unit.tp_overlap = spec.train.tp_overlap;
  sizes.unit.aux_loss_coeff = spec.train.moe_aux_loss_coeff;
  sizes.unit.z_loss_coeff = spec.train.moe_z_loss_coeff;
  sizes.unit.threads = spec.train.threads;
  if (spec.device != DeviceKind::kCpu) sizes.unit.kernels = model::Kernels::kDevice;
  sizes.unit.tp = degrees.tp;
  sizes.unit.sequence_parallel = spec.layout.sp && degrees.tp > 1;
  sizes.shards = degrees.dp_shard.value_or(degrees.dp) * degrees.cp;
  if (spec.model.moe.experts > 0) {
    sizes.unit.ep = degrees.ep;
    sizes.unit.etp = degrees.etp;
    sizes.expert_shards = mesh::Mesh::create(degrees).value().degree(mesh::Axis::kExpertDataShard);
  }
  return sizes;
}

}  // namespace lockstep::spec
