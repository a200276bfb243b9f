#include "lockstep/nn/column_sums.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "tests/nn/oracle.h"

namespace lockstep::nn {
namespace {

// Row after row in f32, so that every bit is known.
TEST(ColumnSums, AddRowsInOrderInTheWideType) {
  for (const auto& [rows, columns] : {std::pair{1, 1}, {7, 3}, {40, 513}, {300, 1100}}) {
    const at::Tensor x = random("x", {rows, columns}, at::kBFloat16);
    at::Tensor wanted = at::empty({columns}, at::kFloat).zero_();
    for (std::int64_t row = 0; row < rows; ++row) wanted.add_(x[row].to(at::kFloat));
    EXPECT_TRUE(at::equal(column_sums(x), wanted)) << rows << " " << columns;
  }
}

}  // namespace
}  // namespace lockstep::nn
