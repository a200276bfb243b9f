// Weights in the types that directories store. Widening is exact (checkpoint/widen.h); narrowing rounds
// to nearest, ties to even, and once. NaNs stay NaNs, and what is too large becomes infinite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/base/dtype.h"
#include "lockstep/base/hash.h"

namespace lockstep::hf {

std::uint16_t f32_to_bf16(float value);
std::uint16_t f64_to_bf16(double value);

// What directories are written in: bf16 and f32.
bool can_write(DType to);

// All elements of `from` into `to`, at any alignment. REQUIRES: a type that can be written or one that
// holds all values of `from_type`; as many elements in both, which do not overlap.
void convert(ByteSpan from, DType from_type, std::span<std::byte> to, DType to_type);

}  // namespace lockstep::hf
