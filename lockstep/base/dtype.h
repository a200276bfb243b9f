// Element types that cross module borders. Compute types of the user are f64, f32 and bf16; the
// others carry indices and raw bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

enum class DType : std::uint8_t { kU8, kI32, kI64, kBF16, kF16, kF32, kF64 };

inline constexpr std::array kAllDTypes = {DType::kU8,  DType::kI32, DType::kI64, DType::kBF16,
                                          DType::kF16, DType::kF32, DType::kF64};

std::size_t size_of(DType dtype);       // bytes per element
std::string_view to_text(DType dtype);  // "bf16"
std::optional<DType> parse_dtype(std::string_view text);

// What a job that computes in `compute` adds up in: gradients, master weights, moments, statistics
// of norms and softmax, losses. f32 for narrower types, else the type itself.
DType wide_type(DType compute);

}  // namespace lockstep
