#include "lockstep/base/dtype.h"

#include "lockstep/base/check.h"

namespace lockstep {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<Row, kAllDTypes.size()> kRows = {{{DType::kU8, "u8", 1},
                                                       {DType::kI32, "i32", 4},
                                                       {DType::kI64, "i64", 8},
                                                       {DType::kBF16, "bf16", 2},
                                                       {DType::kF16, "f16", 2},
                                                       {DType::kF32, "f32", 4},
                                                       {DType::kF64, "f64", 8}}};

const Row& row(DType dtype) {
  for (const Row& r : kRows)
    if (r.dtype == dtype) return r;
  fail_check("dtype is in the table", __FILE__, __LINE__, "");
}

}  // namespace

std::size_t size_of(DType dtype) { return row(dtype).bytes; }

std::string_view to_text(DType dtype) { return row(dtype).name; }

std::optional<DType> parse_dtype(std::string_view text) {
  for (const Row& r : kRows)
    if (r.name == text) return r.dtype;
  return std::nullopt;
}

}  // namespace lockstep
