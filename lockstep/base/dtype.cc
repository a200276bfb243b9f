#include "lockstep/base/dtype.h"

#include "lockstep/base/enum_names.h"

namespace lockstep {
namespace {

// In the order of the values.
constexpr EnumNames<DType, 7> kDTypeNames = {{"u8", "i32", "i64", "bf16", "f16", "f32", "f64"}};
constexpr std::array<std::size_t, 7> kDTypeBytes = {1, 4, 8, 2, 2, 4, 8};

}  // namespace

std::size_t size_of(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  LS_CHECK(index < kDTypeBytes.size(), "type ", index, " of elements");
  return kDTypeBytes[index];
}

std::string_view to_text(DType dtype) { return kDTypeNames.name_of(dtype); }

DType wide_type(DType compute) {
  return compute == DType::kBF16 || compute == DType::kF16 ? DType::kF32 : compute;
}

std::optional<DType> parse_dtype(std::string_view text) { return kDTypeNames.find(text); }

}  // namespace lockstep
