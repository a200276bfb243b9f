// What lies between the two products of an MLP (model::Activation). `wide` is the first one's
// result: [T, 2f] with gate and up side by side where the MLP has a gate, else [T, f]. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/model/model_config.h"

namespace lockstep::nn {

// Columns of `wide` for each of the f columns that come out.
std::int64_t columns_per_output(model::Activation kind);

// [T, f]; nothing else is allocated.
at::Tensor activate(model::Activation kind, const at::Tensor& wide);

// The gradient of `wide` from that of what came out, which is used up: of SwiGLU a tensor of its
// own, of GELU the argument, overwritten.
at::Tensor activate_grad(model::Activation kind, const at::Tensor& wide, at::Tensor d);

}  // namespace lockstep::nn
