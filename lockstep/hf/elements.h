// Numbers in the types that weights are stored in. Widening is exact; narrowing rounds to nearest, ties
// to even. Quiet NaNs stay NaNs, infinities stay what they are, and what is too large becomes infinite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/base/dtype.h"
#include "lockstep/base/hash.h"

namespace lockstep::hf {

float bf16_to_f32(std::uint16_t bits);
float f16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_bf16(float value);
std::uint16_t f64_to_bf16(double value);  // rounded once

// Whether elements of `from` can be read, and those of `to` be written: f64, f32, bf16 and, only to be
// read, f16.
bool can_read(DType from);
bool can_write(DType to);

// All elements of `from` into `to`; neither need be aligned. REQUIRES: can_read, can_write, and as many
// elements in both.
void convert(ByteSpan from, DType from_type, std::span<std::byte> to, DType to_type);

}  // namespace lockstep::hf
