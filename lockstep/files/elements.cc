#include "lockstep/files/elements.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

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

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// IEEE 754 binary16: sign, 5 bits of exponent with bias 15, 10 of fraction.
float from_f16(std::uint16_t bits) {
  const auto sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1fu, fraction = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) {
    const float small = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -small : small;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

template <class From, class To, class Convert>
void each(ByteSpan from, std::span<std::byte> to, Convert converted) {
  const std::size_t count = from.size() / sizeof(From);
  for (std::size_t i = 0; i < count; ++i) {
    From source;
    std::memcpy(&source, from.data() + i * sizeof source, sizeof source);
    const To target = converted(source);
    std::memcpy(to.data() + i * sizeof target, &target, sizeof target);
  }
}

template <class To>
void widen_to(ByteSpan from, DType from_type, std::span<std::byte> to) {
  if (from_type == DType::kBF16)
    each<std::uint16_t, To>(from, to, from_bf16);
  else if (from_type == DType::kF16)
    each<std::uint16_t, To>(from, to, from_f16);
  else
    each<float, To>(from, to, [](float value) { return value; });
}

void widen(ByteSpan from, DType from_type, std::span<std::byte> to, DType to_type) {
  if (from_type == to_type)
    std::memcpy(to.data(), from.data(), from.size());
  else if (to_type == DType::kF32)
    widen_to<float>(from, from_type, to);
  else
    widen_to<double>(from, from_type, to);
}

// The first element whose exponent has all its bits.
template <class Bits>
std::optional<std::int64_t> first_with(ByteSpan elements, Bits exponent) {
  for (std::size_t at = 0; at < elements.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, elements.data() + at, sizeof bits);
    if ((bits & exponent) == exponent) return static_cast<std::int64_t>(at / sizeof bits);
  }
  return std::nullopt;
}

}  // namespace

bool widens(DType from, DType to) {
  if (from == to) return true;
  const bool is_narrow = from == DType::kBF16 || from == DType::kF16;
  return (to == DType::kF32 && is_narrow) ||
         (to == DType::kF64 && (is_narrow || from == DType::kF32));
}

DType wider(DType a, DType b) {
  if (a == b) return a;
  return a == DType::kF64 || b == DType::kF64 ? DType::kF64 : DType::kF32;
}

bool can_round_to(DType to) { return to == DType::kF32 || to == DType::kBF16; }

std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Adding could carry a NaN's mantissa over into a number.
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

// By way of an f32 that is rounded to odd: it keeps in its last bit whether anything was lost, so
// the second rounding decides as if it were the only one (Boldo and Melquiond, IEEE TC 57(4),
// 2008).
std::uint16_t f64_to_bf16(double value) {
  auto near = static_cast<float>(value);
  if (static_cast<double>(near) != value && !std::isnan(value)) {
    if (std::abs(static_cast<double>(near)) > std::abs(value)) near = std::nextafter(near, 0.0F);
    near = std::bit_cast<float>(std::bit_cast<std::uint32_t>(near) | 1U);
  }
  return f32_to_bf16(near);
}

void convert(ByteSpan from, DType from_type, std::span<std::byte> to, DType to_type) {
  LS_CHECK(from.size() / size_of(from_type) * size_of(to_type) == to.size());
  if (widens(from_type, to_type)) return widen(from, from_type, to, to_type);
  LS_CHECK(can_round_to(to_type), to_text(from_type), " to ", to_text(to_type));
  if (from_type == DType::kF64 && to_type == DType::kF32)
    return each<double, float>(from, to, [](double x) { return static_cast<float>(x); });
  if (from_type == DType::kF64) return each<double, std::uint16_t>(from, to, f64_to_bf16);
  if (from_type == DType::kF32) return each<float, std::uint16_t>(from, to, f32_to_bf16);
  std::vector<std::byte> wide(from.size() / size_of(from_type) * sizeof(float));
  widen(from, from_type, wide, DType::kF32);
  each<float, std::uint16_t>(wide, to, f32_to_bf16);
}

std::optional<std::int64_t> first_not_finite(ByteSpan elements, DType type) {
  if (type == DType::kF64) return first_with<std::uint64_t>(elements, 0x7ff0'0000'0000'0000);
  if (type == DType::kF32) return first_with<std::uint32_t>(elements, 0x7f80'0000);
  if (type == DType::kBF16) return first_with<std::uint16_t>(elements, 0x7f80);
  LS_CHECK(type == DType::kF16, to_text(type));
  return first_with<std::uint16_t>(elements, 0x7c00);
}

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
