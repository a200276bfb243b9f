#include "lockstep/nn/column_sums.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "lockstep/base/check.h"
#include "lockstep/base/vector_clones.h"

namespace lockstep::nn {
namespace {

constexpr std::int64_t kColumns = 512;  // whose sums stay in the first-level cache

LS_VECTOR_CLONES void add_row(const at::BFloat16* row, std::int64_t n, float* sums) {
  for (std::int64_t i = 0; i < n; ++i) sums[i] += static_cast<float>(row[i]);
}

}  // namespace

at::Tensor column_sums(const at::Tensor& x) {
  LS_CHECK(x.is_cpu() && x.is_contiguous() && x.scalar_type() == at::kBFloat16 && x.dim() == 2,
           "sums of rows of bf16 on a CPU");
  const std::int64_t rows = x.size(0), columns = x.size(1);
  at::Tensor made = at::empty({columns}, x.options().dtype(at::kFloat));
  const auto* from = x.const_data_ptr<at::BFloat16>();
  auto* sums = made.mutable_data_ptr<float>();
  at::parallel_for(0, columns, 64, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t begin = first; begin < last; begin += kColumns) {
      const std::int64_t n = std::min(kColumns, last - begin);
      std::fill_n(sums + begin, n, 0.0F);
      for (std::int64_t row = 0; row < rows; ++row)
        add_row(from + row * columns + begin, n, sums + begin);
    }
  });
  return made;
}

}  // namespace lockstep::nn
