#include "lockstep/hf/elements.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/checkpoint/widen.h"

namespace lockstep::hf {
namespace {

template <class From, class To, class Round>
void narrow(ByteSpan from, std::span<std::byte> to, Round round) {
  const std::size_t count = from.size() / sizeof(From);
  for (std::size_t i = 0; i < count; ++i) {
    From wide;
    std::memcpy(&wide, from.data() + i * sizeof wide, sizeof wide);
    const To close = round(wide);
    std::memcpy(to.data() + i * sizeof close, &close, sizeof close);
  }
}

}  // namespace

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

bool can_write(DType to) { return to == DType::kF32 || to == DType::kBF16; }

void convert(ByteSpan from, DType from_type, std::span<std::byte> to, DType to_type) {
  if (checkpoint::widens(from_type, to_type))
    return checkpoint::widen(from_type, from, to_type, to);
  LS_CHECK(can_write(to_type), to_text(from_type), " to ", to_text(to_type));
  LS_CHECK(from.size() / size_of(from_type) * size_of(to_type) == to.size());
  if (from_type == DType::kF64 && to_type == DType::kF32)
    return narrow<double, float>(from, to, [](double x) { return static_cast<float>(x); });
  if (from_type == DType::kF64) return narrow<double, std::uint16_t>(from, to, f64_to_bf16);
  if (from_type == DType::kF32) return narrow<float, std::uint16_t>(from, to, f32_to_bf16);
  std::vector<std::byte> wide(from.size() / size_of(from_type) * sizeof(float));
  checkpoint::widen(from_type, from, DType::kF32, wide);
  narrow<float, std::uint16_t>(wide, to, f32_to_bf16);
}

}  // namespace lockstep::hf
