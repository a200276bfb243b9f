// Floating-point elements in the types that files store. Widening is exact; narrowing rounds to nearest,
// ties to even, and once. NaNs stay NaNs, and what is too large becomes infinite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "lockstep/base/dtype.h"
#include "lockstep/base/hash.h"

namespace lockstep::files {

bool widens(DType from, DType to);  // `to` holds all values of `from`; also to itself
bool can_round_to(DType to);        // bf16 and f32

std::uint16_t f32_to_bf16(float value);
std::uint16_t f64_to_bf16(double value);

// All elements of `from` into `to`, at any alignment. REQUIRES: widens() or can_round_to(); as many
// elements in both, which do not overlap.
void convert(ByteSpan from, DType from_type, std::span<std::byte> to, DType to_type);

// Number of the first element that is NaN or infinite, at any alignment; nothing where none is.
std::optional<std::int64_t> first_not_finite(ByteSpan elements, DType type);

}  // namespace lockstep::files
