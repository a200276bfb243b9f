#include "lockstep/checkpoint/widen.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "lockstep/base/check.h"

namespace lockstep::checkpoint {
namespace {

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
void convert(std::span<const std::byte> source, std::span<std::byte> target, Convert value) {
  const std::size_t count = source.size() / sizeof(From);
  for (std::size_t i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, source.data() + i * sizeof from, sizeof from);
    const To to = value(from);
    std::memcpy(target.data() + i * sizeof to, &to, sizeof to);
  }
}

template <class To>
void widen_to(DType from, std::span<const std::byte> source, std::span<std::byte> target) {
  if (from == DType::kBF16)
    convert<std::uint16_t, To>(source, target, from_bf16);
  else if (from == DType::kF16)
    convert<std::uint16_t, To>(source, target, from_f16);
  else
    convert<float, To>(source, target, [](float value) { return value; });
}

}  // namespace

bool widens(DType from, DType to) {
  if (from == to) return true;
  const bool is_narrow = from == DType::kBF16 || from == DType::kF16;
  return (to == DType::kF32 && is_narrow) ||
         (to == DType::kF64 && (is_narrow || from == DType::kF32));
}

void widen(DType from, std::span<const std::byte> source, DType to, std::span<std::byte> target) {
  LS_CHECK(widens(from, to) && source.size() / size_of(from) * size_of(to) == target.size());
  if (from == to)
    std::memcpy(target.data(), source.data(), source.size());
  else if (to == DType::kF32)
    widen_to<float>(from, source, target);
  else
    widen_to<double>(from, source, target);
}

}  // namespace lockstep::checkpoint
