// Element types that a safetensors file may hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "lockstep/base/dtype.h"

namespace lockstep::files {

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

}  // namespace lockstep::files
