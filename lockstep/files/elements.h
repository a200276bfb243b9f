// Floating-point elements in the types that files store. Widening is exact; narrowing rounds to
// nearest, ties to even, and once. NaNs stay NaNs, and what is too large becomes infinite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "lockstep/base/dtype.h"
#include "lockstep/base/hash.h"

namespace lockstep::files {

// Element types that a safetensors file may hold.

// In the order in which the format sorts them: ascending alignment.
enum class ElementType : std::uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

std::int64_t bits_of(ElementType type);      // of one element; 4, 6 or a multiple of 8
std::string_view to_text(ElementType type);  // "BF16", as files write it
std::optional<ElementType> parse_element_type(std::string_view text);

ElementType element_type(DType dtype);
std::optional<DType> dtype_of(ElementType type);  // nothing for types that Lockstep does not use

bool widens(DType from, DType to);  // `to` holds all values of `from`; also to itself
DType wider(DType a, DType b);      // holds all values of both, each f64, f32, bf16 or f16
bool can_round_to(DType to);        // bf16 and f32

std::uint16_t f32_to_bf16(float value);
std::uint16_t f64_to_bf16(double value);

// All elements of `from` into `to`, at any alignment. REQUIRES: widens() or can_round_to(); as many
// elements in both, which do not overlap.
void convert(ByteSpan from, DType from_type, std::span<std::byte> to, DType to_type);

// Number of the first element that is NaN or infinite, at any alignment; nothing where none is.
std::optional<std::int64_t> first_not_finite(ByteSpan elements, DType type);

}  // namespace lockstep::files
