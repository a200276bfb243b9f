// A unit's experts in one buffer with its other parameters, behind them: for tests of passes, which
// do not ask who holds what.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/model/flat_layout.h"

namespace lockstep::nn {

// Of each distinct unit.
inline std::vector<model::FlatLayout> unit_layouts(const model::Model& model, std::int64_t tp = 1) {
  const std::vector<model::FlatLayout> segments = model::flat_layouts(model, tp);
  const std::size_t units = model.distinct.size();
  std::vector<model::FlatLayout> all;
  for (std::size_t i = 0; i < units; ++i) {
    model::FlatLayout& unit = all.emplace_back(segments[i]);
    if (segments.size() == units) continue;
    const model::FlatLayout& experts = segments[units + i];
    for (model::FlatParam param : experts.params) {
      param.offset += unit.size;
      unit.params.push_back(param);
    }
    unit.size += experts.size;
  }
  return all;
}

// Selection biases that routers get here, f32; undefined where the model has none.
at::Tensor router_bias(const model::ModelConfig& config);

}  // namespace lockstep::nn
