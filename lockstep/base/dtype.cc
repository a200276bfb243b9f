#include "lockstep/base/dtype.h"

#include "lockstep/base/check.h"

namespace lockstep {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
};
constexpr DTypeRow kDTypeRows[] = {{DType::kU8, "u8", 1},   {DType::kI32, "i32", 4},
                                   {DType::kI64, "i64", 8}, {DType::kBF16, "bf16", 2},
                                   {DType::kF16, "f16", 2}, {DType::kF32, "f32", 4},
                                   {DType::kF64, "f64", 8}};

const DTypeRow& row(DType dtype) {
  for (const DTypeRow& r : kDTypeRows)
    if (r.dtype == dtype) return r;
  fail_check("dtype is in the table", __FILE__, __LINE__, "");
}

}  // namespace

std::size_t size_of(DType dtype) { return row(dtype).bytes; }

std::string_view to_text(DType dtype) { return row(dtype).name; }

DType wide_type(DType compute) {
  return compute == DType::kBF16 || compute == DType::kF16 ? DType::kF32 : compute;
}

std::optional<DType> parse_dtype(std::string_view text) {
  for (const DTypeRow& r : kDTypeRows)
    if (r.name == text) return r.dtype;
  return std::nullopt;
}

}  // namespace lockstep
