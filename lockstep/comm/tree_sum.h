// The one order in which Lockstep adds across ranks: an aligned binary tree over rank order,
//   n = 4: (0+1)+(2+3)      n = 5: ((0+1)+(2+3))+4      n = 6: ((0+1)+(2+3))+(4+5)
// that is, a range splits at the largest power of two below its length. Sums over aligned halves
// are subtrees, so flat and hybrid sharding of the same ranks give the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/base/dtype.h"

namespace lockstep::comm {

// Whether reductions over this type are defined: f64, f32, bf16, i32, i64.
bool can_sum(DType dtype);

// out[i] = tree(in[0][i], in[1][i], ...) for i < count. bf16 is added in f32 and rounded once (to
// nearest even) at the end; integers wrap. `out` may be one of the inputs, but must not overlap one
// partly. REQUIRES: can_sum(dtype); at least one input; CPU memory.
void tree_sum(std::span<const void* const> in, void* out, std::int64_t count, DType dtype);

}  // namespace lockstep::comm
