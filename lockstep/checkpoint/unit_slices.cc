#include "lockstep/checkpoint/unit_slices.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::checkpoint {
namespace {

// A tied weight has one name: that of the embedding's table, which is the first of its unit's buffer.
std::string global_name(const model::Model& model, int unit, const model::Param& param) {
  if (!param.tied) return model::name_at(param.name, model::Model::layer(unit));
  const model::Unit& embed = model.unit(0);
  const auto table = std::ranges::find(embed.params, param.shape, &model::Param::shape);
  LS_CHECK(table != embed.params.end(), param.name, " is tied to nothing");
  return model::name_at(table->name, model::Model::layer(0));
}

}  // namespace

std::vector<UnitSlice> unit_slices(const model::Model& model, int unit,
                                   const model::FlatLayout& layout, model::TensorPlace place,
                                   model::FlatRange range, Role role) {
  std::vector<UnitSlice> slices;
  for (const model::FlatParam& flat : layout.params) {
    const model::FlatRange part = model::common(range, {flat.offset, flat.end()});
    if (part.size() <= 0) continue;
    const model::Param& param = model.unit(unit).params[static_cast<std::size_t>(flat.param)];
    Box box = whole(param.shape);
    const model::TensorShard shard = model::tensor_shard(param, place.tp, place.coord);
    const auto dim = static_cast<std::size_t>(shard.dim);
    const bool is_cut = shard.length != param.shape[dim];
    box.begin[dim] = shard.begin;
    box.extent[dim] = shard.length;
    slices.push_back({{global_name(model, unit, param), role, param.shape, std::move(box),
                       part.begin - flat.offset, part.end - flat.offset},
                      part.begin,
                      param.tied || (!is_cut && place.coord != 0)});
  }
  return slices;
}

std::vector<Slice> model_slices(const model::Model& model, Role role) {
  const auto layouts = model::flat_layouts(model);
  std::vector<Slice> slices;
  for (int unit = 0; unit < model.num_units(); ++unit) {
    const model::FlatLayout& layout =
        layouts[static_cast<std::size_t>(model.order[static_cast<std::size_t>(unit)])];
    for (UnitSlice& part : unit_slices(model, unit, layout, {}, {0, layout.size}, role))
      if (!part.is_copy) slices.push_back(std::move(part.slice));
  }
  return slices;
}

}  // namespace lockstep::checkpoint
