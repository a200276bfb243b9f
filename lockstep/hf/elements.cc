#include "lockstep/hf/elements.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "lockstep/base/check.h"

namespace lockstep::hf {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void store(T value, std::byte* at) {
  std::memcpy(at, &value, sizeof value);
}

template <class From, class To, class Each>
void each(ByteSpan from, std::span<std::byte> to, Each change) {
  const std::size_t count = from.size() / sizeof(From);
  for (std::size_t i = 0; i < count; ++i)
    store<To>(change(load<From>(from.data() + i * sizeof(From))), to.data() + i * sizeof(To));
}

// `wide` gives a float or double of a stored element.
template <class From, class Wide>
void convert_from(ByteSpan from, std::span<std::byte> to, DType to_type, Wide wide) {
  if (to_type == DType::kF64)
    each<From, double>(from, to, [&](From x) { return static_cast<double>(wide(x)); });
  else if (to_type == DType::kF32)
    each<From, float>(from, to, [&](From x) { return static_cast<float>(wide(x)); });
  else if constexpr (std::is_same_v<From, double>)
    each<From, std::uint16_t>(from, to, f64_to_bf16);
  else
    each<From, std::uint16_t>(from, to, [&](From x) { return f32_to_bf16(wide(x)); });
}

}  // namespace

float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float small = std::ldexp(static_cast<float>(mantissa), -24);
  return sign != 0 ? -small : small;
}

std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Adding could carry a NaN's mantissa over into a number.
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

// By way of an f32 that is rounded to odd: it keeps in its last bit whether anything was lost, so the
// second rounding decides as if it were the only one (Boldo and Melquiond, IEEE TC 57(4), 2008).
std::uint16_t f64_to_bf16(double value) {
  auto near = static_cast<float>(value);
  if (static_cast<double>(near) != value && !std::isnan(value)) {
    if (std::abs(static_cast<double>(near)) > std::abs(value)) near = std::nextafter(near, 0.0F);
    near = std::bit_cast<float>(std::bit_cast<std::uint32_t>(near) | 1U);
  }
  return f32_to_bf16(near);
}

bool can_read(DType from) { return can_write(from) || from == DType::kF16; }

bool can_write(DType to) { return to == DType::kF64 || to == DType::kF32 || to == DType::kBF16; }

void convert(ByteSpan from, DType from_type, std::span<std::byte> to, DType to_type) {
  LS_CHECK(can_read(from_type) && can_write(to_type), to_text(from_type), " to ", to_text(to_type));
  LS_CHECK(from.size() / size_of(from_type) == to.size() / size_of(to_type) &&
               from.size() % size_of(from_type) == 0 && to.size() % size_of(to_type) == 0,
           from.size(), " bytes of ", to_text(from_type), " into ", to.size());
  if (from_type == to_type) {
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
    return;
  }
  switch (from_type) {
    case DType::kBF16:
      return convert_from<std::uint16_t>(from, to, to_type, bf16_to_f32);
    case DType::kF16:
      return convert_from<std::uint16_t>(from, to, to_type, f16_to_f32);
    case DType::kF32:
      return convert_from<float>(from, to, to_type, [](float x) { return x; });
    default:
      return convert_from<double>(from, to, to_type, [](double x) { return x; });
  }
}

}  // namespace lockstep::hf
