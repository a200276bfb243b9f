#include "lockstep/files/element_type.h"

#include <array>

#include "lockstep/base/check.h"

namespace lockstep::files {
namespace {

struct TypeRow {
  ElementType type;
  std::string_view name;
  std::int64_t bits;
  std::optional<DType> dtype = {};
};

constexpr std::array kTypeRows = {
    TypeRow{ElementType::kBool, "BOOL", 8},
    TypeRow{ElementType::kF4, "F4", 4},
    TypeRow{ElementType::kF6E2M3, "F6_E2M3", 6},
    TypeRow{ElementType::kF6E3M2, "F6_E3M2", 6},
    TypeRow{ElementType::kU8, "U8", 8, DType::kU8},
    TypeRow{ElementType::kI8, "I8", 8},
    TypeRow{ElementType::kF8E5M2, "F8_E5M2", 8},
    TypeRow{ElementType::kF8E4M3, "F8_E4M3", 8},
    TypeRow{ElementType::kF8E8M0, "F8_E8M0", 8},
    TypeRow{ElementType::kF8E4M3FNUZ, "F8_E4M3FNUZ", 8},
    TypeRow{ElementType::kF8E5M2FNUZ, "F8_E5M2FNUZ", 8},
    TypeRow{ElementType::kI16, "I16", 16},
    TypeRow{ElementType::kU16, "U16", 16},
    TypeRow{ElementType::kF16, "F16", 16, DType::kF16},
    TypeRow{ElementType::kBF16, "BF16", 16, DType::kBF16},
    TypeRow{ElementType::kI32, "I32", 32, DType::kI32},
    TypeRow{ElementType::kU32, "U32", 32},
    TypeRow{ElementType::kF32, "F32", 32, DType::kF32},
    TypeRow{ElementType::kC64, "C64", 64},
    TypeRow{ElementType::kF64, "F64", 64, DType::kF64},
    TypeRow{ElementType::kI64, "I64", 64, DType::kI64},
    TypeRow{ElementType::kU64, "U64", 64},
};

const TypeRow& row_of(ElementType type) {
  const TypeRow& row = kTypeRows.at(static_cast<std::size_t>(type));
  LS_CHECK(row.type == type);
  return row;
}

}  // namespace

std::int64_t bits_of(ElementType type) { return row_of(type).bits; }

std::string_view to_text(ElementType type) { return row_of(type).name; }

std::optional<ElementType> parse_element_type(std::string_view text) {
  for (const TypeRow& row : kTypeRows)
    if (row.name == text) return row.type;
  return std::nullopt;
}

ElementType element_type(DType dtype) {
  for (const TypeRow& row : kTypeRows)
    if (row.dtype == dtype) return row.type;
  fail_check("every DType has a row", __FILE__, __LINE__, "");
}

std::optional<DType> dtype_of(ElementType type) { return row_of(type).dtype; }

}  // namespace lockstep::files
