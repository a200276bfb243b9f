// Initial weights: a pure function of (seed, parameter name, element index), so that every layout
// starts from the same bits and a rank makes only what it holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/arch/arch.h"
#include "lockstep/arch/flat_layout.h"
#include "lockstep/arch/flat_runs.h"

namespace lockstep::optim {

// Writes elements `range` of the flat buffer of the unit at `position`, which are all of `out`, in
// CPU memory; of the buffer of `place` where tensor ranks share the unit. A tied copy gets the values
// of the weight it copies. Gaps become zero. bf16 gets the rounding of what f32 would get.
void write_initial(const arch::Model& model, int position, const arch::FlatLayout& layout,
                   arch::FlatRange range, std::uint64_t seed, const at::Tensor& out,
                   arch::TensorPlace place = {});

}  // namespace lockstep::optim
