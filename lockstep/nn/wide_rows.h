// Sums and products over elements narrower than f32 are computed in f32, on copies of a few rows at
// a time (model::wide_rows); on a device of all of them, at one launch. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "lockstep/model/unit_bytes.h"

namespace lockstep::nn {

// f32, or the type of `x` if that is wider.
inline at::ScalarType wide_type_of(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}
inline at::Tensor widen(const at::Tensor& x) { return x.to(wide_type_of(x)); }
inline bool is_narrow(const at::Tensor& x) { return wide_type_of(x) != x.scalar_type(); }

// Calls `body` with (first row, rows) until all rows of `x`, along its first dim, were named.
template <class Body>
void for_row_blocks(const at::Tensor& x, Body body) {
  if (x.size(0) == 0) return;
  const std::int64_t rows = x.is_cpu() ? model::wide_rows(x.numel() / x.size(0)) : x.size(0);
  for (std::int64_t begin = 0; begin < x.size(0); begin += rows)
    body(begin, std::min(rows, x.size(0) - begin));
}

}  // namespace lockstep::nn
