#include "lockstep/nn/unit_runner.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "lockstep/base/check.h"
#include "lockstep/nn/kernels.h"

namespace lockstep::nn {
namespace {

// What parts call a layer, and its parameters in the unit without ".weight" and ".bias". Those that
// one product serves are one layer.
struct LayerRow {
  std::string_view name;
  std::vector<std::string> params;
};
const std::vector<LayerRow>& layer_rows() {
  static const std::vector<LayerRow> rows = {
      {"embed", {"embed"}},
      {"positions", {"embed.positions"}},
      {"attn_norm", {"blocks.{i}.attn_norm"}},
      {"attn_post_norm", {"blocks.{i}.attn_post_norm"}},
      {"qkv", {"blocks.{i}.attn.q", "blocks.{i}.attn.k", "blocks.{i}.attn.v"}},
      {"q_norm", {"blocks.{i}.attn.q_norm"}},
      {"k_norm", {"blocks.{i}.attn.k_norm"}},
      {"attn_out", {"blocks.{i}.attn.o"}},
      {"mlp_norm", {"blocks.{i}.mlp_norm"}},
      {"mlp_post_norm", {"blocks.{i}.mlp_post_norm"}},
      {"gate_up", {"blocks.{i}.mlp.gate", "blocks.{i}.mlp.up"}},
      {"down", {"blocks.{i}.mlp.down"}},
      {"router", {"blocks.{i}.moe.router"}},
      {"experts_gate", {"blocks.{i}.moe.experts.gate"}},
      {"experts_up", {"blocks.{i}.moe.experts.up"}},
      {"experts_down", {"blocks.{i}.moe.experts.down"}},
      {"shared_gate", {"blocks.{i}.moe.shared_gate"}},
      {"shared_gate_up", {"blocks.{i}.moe.shared.gate", "blocks.{i}.moe.shared.up"}},
      {"shared_mlp_gate", {"blocks.{i}.moe.shared.gate"}},
      {"shared_mlp_up", {"blocks.{i}.moe.shared.up"}},
      {"shared_down", {"blocks.{i}.moe.shared.down"}},
      {"norm", {"head.norm"}},
      {"head", {"head"}},
  };
  return rows;
}

model::FlatRange place_if_there(const model::Unit& unit, const model::FlatLayout& flat,
                                const LayerRow& row, const char* ending) {
  std::vector<std::string> names;
  for (const std::string& param : row.params) {
    const auto found = std::ranges::find(unit.params, param + ending, &model::Param::name);
    if (found != unit.params.end() && flat.holds(static_cast<int>(found - unit.params.begin())))
      names.push_back(param + ending);
  }
  return place_of(unit, flat, names);
}

std::vector<LayerPlace> layers_of(const model::Unit& unit, const UnitPlace& of) {
  std::vector<LayerPlace> layers;
  for (const model::FlatLayout* flat : {&of.own, of.experts}) {
    if (flat == nullptr) continue;
    for (const LayerRow& row : layer_rows()) {
      LayerPlace place = {row.name, place_if_there(unit, *flat, row, ".weight"),
                          place_if_there(unit, *flat, row, ".bias"), flat == of.experts};
      if (place.weight.size() == 0) place.weight = place_if_there(unit, *flat, row, "");
      if (place.weight.size() > 0) layers.push_back(place);
    }
  }
  return layers;
}

Scores scores_of(const model::ModelConfig& config) {
  const double dim =
      config.query_scale_dim > 0.0 ? config.query_scale_dim : static_cast<double>(config.head_dim);
  return {1.0 / std::sqrt(dim), config.attention_softcap};
}

// Of the table that tensor ranks cut by vocabulary; a block has none.
VocabShard vocab_shard(const model::Unit& unit, const TensorGroup& group) {
  for (const model::Param& param : unit.params) {
    if (param.sharded.empty() || !param.sharded[0].padded) continue;
    const model::TensorShard own = model::tensor_shard(param, group.size(), group.index());
    return {own.begin, own.length, own.padding};
  }
  return {};
}

// Where there are derivatives, lists must find that of every parameter of the unit, and no other.
void check_covers(const UnitContext& context, const parts::UnitPasses& passes,
                  const UnitPlace& place) {
  if (!passes.has(parts::UnitPass::kBackward)) return;
  std::int64_t has = 0, meets = 0;
  for (const model::FlatParam& param : place.own.params) has += param.numel;
  if (place.experts != nullptr)
    for (const model::FlatParam& param : place.experts->params) has += param.numel;
  for (const parts::Part& part : passes.at(parts::UnitPass::kBackward).parts) {
    const auto layer = std::ranges::find(context.layers, part.param, &LayerPlace::name);
    if (layer == context.layers.end() || !writes_gradient(part)) continue;
    const bool is_bias = part.kind == parts::Kind::kAccumulateBias;
    const bool has_bias = is_bias || part.in.size() > 1;
    if (!is_bias) meets += layer->weight.size();
    if (part.kind != parts::Kind::kLinearWeight && part.kind != parts::Kind::kExpertLinearWeight &&
        has_bias) {
      LS_CHECK(layer->bias.size() > 0, "the unit has no bias of ", part.param);
      meets += layer->bias.size();
    }
  }
  LS_CHECK(meets == has, "lists of ", meets, " parameters for a unit of ", has);
}

}  // namespace

UnitRunner::UnitRunner(const model::ModelConfig& config, const model::Unit& unit,
                       const UnitPlace& place, const model::UnitSizes& sizes, const Rope* rope,
                       TensorGroup group, ContextGroup context, ExpertGroup experts)
    : passes_(config, unit, sizes),
      context_{.kernels = sizes.kernels,
               .dtype = sizes.dtype,
               .norm_eps = config.norm_eps,
               .scores = scores_of(config),
               .moe = config.moe,
               .aux_loss_coeff = sizes.aux_loss_coeff,
               .z_loss_coeff = sizes.z_loss_coeff,
               .logit_cap = config.logit_softcap,
               .vocab = vocab_shard(unit, group),
               .group = group,
               .context = context,
               .experts = experts,
               .rope = rope,
               .layers = layers_of(unit, place)} {
  LS_CHECK(
      group.size() == sizes.tp && group.shares_rows() == (sizes.sequence_parallel && sizes.tp > 1),
      "a group of ", group.size(), " tensor ranks for lists of ", sizes.tp);
  LS_CHECK(context.size() == sizes.cp, "a group of ", context.size(),
           " context ranks for lists of ", sizes.cp);
  LS_CHECK(experts.size() == sizes.ep, "a group of ", experts.size(),
           " ranks that share experts for lists of ", sizes.ep);
  LS_CHECK(sizes.expert_ranks() == sizes.tp || experts.tensor.size() == sizes.expert_ranks(),
           "a group of ", experts.tensor.size(), " ranks that share an expert for lists of ",
           sizes.expert_ranks());
  check_covers(context_, passes_, place);
}

at::Tensor UnitRunner::run(parts::UnitPass name, at::Tensor given, Kept& kept,
                           const PassInputs& inputs) const {
  const parts::Pass& pass = passes_.at(name);
  PassRun run(context_, passes_, pass, inputs);
  for (auto& [storage, tensor] : kept) run.memory(storage) = std::move(tensor);
  kept.clear();
  if (pass.given != parts::kNoValue) run.memory(pass.storage(pass.given)) = std::move(given);

  const auto end = [&](const std::vector<parts::ValueId>& storages) {
    for (const parts::ValueId storage : storages) run.memory(storage).reset();
  };
  const auto take_time = [&] {
    if (inputs.times != nullptr) inputs.times->push_back(std::chrono::steady_clock::now());
  };
  take_time();
  int behind = 0;
  for_each_part(
      pass, run.sizes,
      [&](std::size_t i, std::int64_t first_row) {
        const bool is_told = inputs.place && pass.parts[i].kind == parts::Kind::kWait;
        run.begin(pass.parts[i], first_row);
        if (is_told) inputs.place(behind, true);
        kernel_of(pass.parts[i].kind, context_.kernels)(run);
        ++behind;
        if (is_told) inputs.place(behind, false);
        end(pass.ends[i]);
        take_time();
      },
      [&] { end(pass.repeat_ends); });

  at::Tensor result;
  if (pass.result != parts::kNoValue) result = std::move(run.memory(pass.storage(pass.result)));
  kept.reserve(pass.after.size());
  for (const parts::ValueId id : pass.after) {
    at::Tensor& tensor = run.memory(pass.storage(id));
    if (tensor.defined()) kept.emplace_back(pass.storage(id), std::move(tensor));
  }
  return result;
}

}  // namespace lockstep::nn
