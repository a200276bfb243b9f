#include "lockstep/nn/wide_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include <limits>

#include "lockstep/tensor/memory.h"
#include "tests/nn/oracle.h"

namespace lockstep::nn {
namespace {

struct ProductCase {
  std::int64_t m, k, n;
  bool a_by_columns, b_by_columns;
};

std::vector<ProductCase> cases() {
  std::vector<ProductCase> all;
  for (const auto& [m, k, n] :
       {std::tuple{1L, 1L, 1L}, {3L, 40L, 5L}, {64L, 24L, 96L}, {33L, 700L, 17L}, {130L, 1L, 31L}})
    for (const bool left : {false, true})
      for (const bool right : {false, true}) all.push_back({m, k, n, left, right});
  return all;
}

at::Tensor matrix(const char* name, std::int64_t rows, std::int64_t columns, bool by_columns) {
  return by_columns ? random(name, {columns, rows}, at::kBFloat16).t()
                    : random(name, {rows, columns}, at::kBFloat16);
}

// A product of two bf16 is exact in f32, and k of them in any order are off by at most k eps / 2
// times the sum of their sizes (Higham, Accuracy and Stability, 2002, section 3.1), one more for
// what is kept.
TEST(WideProduct, AddsUpInTheWideType) {
  for (const ProductCase& of : cases()) {
    const at::Tensor a = matrix("a", of.m, of.k, of.a_by_columns),
                     b = matrix("b", of.k, of.n, of.b_by_columns);
    const at::Tensor before = random("before", {of.m, of.n}, at::kFloat);
    const at::Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
    const at::Tensor sizes = at::mm(a.to(at::kDouble).abs(), b.to(at::kDouble).abs());
    const double eps = std::numeric_limits<float>::epsilon();
    const auto expect_near = [&](const at::Tensor& got, const at::Tensor& wanted,
                                 const at::Tensor& scale) {
      const at::Tensor excess =
          (got.to(at::kDouble) - wanted).abs() - scale * (static_cast<double>(of.k + 1) * eps / 2);
      EXPECT_LE(excess.max().item<double>(), 0) << of.m << " " << of.k << " " << of.n;
    };
    at::Tensor fresh = at::full({of.m, of.n}, kNan, at::kFloat);
    multiply_into(fresh, a, b, 0.0);
    expect_near(fresh, exact, sizes);
    at::Tensor sum = before.clone();
    multiply_into(sum, a, b, 1.0);
    expect_near(sum, exact + before, sizes + before.abs());
  }
}

// What the promises of bf16 rest on: the same operands give the same bits wherever they lie on 64
// bytes, and nothing is taken beside the result.
TEST(WideProduct, RepeatsBitForBitWithoutMemoryOfItsOwn) {
  for (const ProductCase& of : cases()) {
    const at::Tensor a = matrix("a", of.m, of.k, of.a_by_columns),
                     b = matrix("b", of.k, of.n, of.b_by_columns);
    at::Tensor first = at::full({of.m, of.n}, 1.0, at::kFloat);
    multiply_into(first, a, b, 1.0);
    for (int shift = 0; shift < 3; ++shift) {
      const at::Tensor home = at::full({32 * shift + of.m * of.n}, 1.0, at::kFloat);
      const at::Tensor again = home.narrow(0, 32 * shift, of.m * of.n).view({of.m, of.n});
      const at::Tensor a_again = of.a_by_columns ? a.t().clone().t() : a.clone();
      tensor::MemoryAccount account;
      const tensor::ChargeTo charge(account);
      multiply_into(again, a_again, b, 1.0);
      EXPECT_EQ(account.peak(), 0);
      EXPECT_TRUE(at::equal(again, first));
    }
  }
}

TEST(WideProduct, OfEqualTypesIsThePlainOne) {
  const at::Tensor a = random("a", {7, 9}, at::kDouble), b = random("b", {9, 4}, at::kDouble);
  at::Tensor out = random("out", {7, 4}, at::kDouble);
  const at::Tensor sum = out.addmm(a, b);
  multiply_into(out, a, b, 1.0);
  EXPECT_TRUE(at::equal(out, sum));
  multiply_into(out, a, b, 0.0);
  EXPECT_TRUE(at::equal(out, at::mm(a, b)));
}

}  // namespace
}  // namespace lockstep::nn
