// Parameters and gradients inside a unit's flat buffer (model/flat_layout.h): where they lie, views
// of them, and the one routine that adds a weight's gradient. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/model/arch.h"
#include "lockstep/model/flat_layout.h"

namespace lockstep::nn {

// Where the parameters called `names` ("blocks.{i}.attn.q.weight") lie.
// REQUIRES: they are parameters of `unit` and adjacent in this order, so that one view covers them.
model::FlatRange place_of(const model::Unit& unit, const model::FlatLayout& flat,
                          const std::vector<std::string>& names);

// Views; nothing is copied.
at::Tensor vector_at(const at::Tensor& flat, model::FlatRange place);
at::Tensor matrix_at(const at::Tensor& flat, model::FlatRange place, std::int64_t columns);

// weight_grad = or += d_out^T input, without a temporary. `weight_grad` is a view of a gradient
// buffer, [out, in]; `d_out` is [T, out], `input` [T, in]. Operands may be bf16 where it is f32.
void add_product(at::Tensor weight_grad, const at::Tensor& d_out, const at::Tensor& input,
                 bool is_first);
// grad = or += value.
void add_value(const at::Tensor& grad, const at::Tensor& value, bool is_first);

}  // namespace lockstep::nn
