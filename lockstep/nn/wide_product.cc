#include "lockstep/nn/wide_product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "lockstep/base/check.h"

// MKL's product of bf16 operands into f32, which LibTorch's own attention uses and its library
// exports, but no operator of it reaches. Weak, because a LibTorch without MKL lacks it.
extern "C" void cblas_gemm_bf16bf16f32(int layout, int trans_a, int trans_b, int m, int n, int k,
                                       float alpha, const void* a, int lda, const void* b, int ldb,
                                       float beta, float* c, int ldc) __attribute__((weak));

namespace lockstep::nn {
namespace {

constexpr int kRowMajor = 101, kAsIs = 111, kTransposed = 112;  // of the CBLAS interface

NarrowMatrix matrix_of(const at::Tensor& x) {
  // A dim of one element may have any stride.
  const bool by_rows = x.stride(1) == 1 && x.stride(0) >= x.size(1);
  LS_CHECK(by_rows || (x.stride(0) == 1 && x.stride(1) >= x.size(0)), "an operand with strides ",
           x.stride(0), " and ", x.stride(1));
  return {x.const_data_ptr<at::BFloat16>(), by_rows ? x.stride(0) : x.stride(1), !by_rows};
}

void multiply_narrow(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, double keep) {
  LS_CHECK(out.is_cpu() && out.scalar_type() == at::kFloat && a.scalar_type() == at::kBFloat16 &&
               b.scalar_type() == at::kBFloat16,
           "a product of ", a.scalar_type(), " and ", b.scalar_type(), " into ", out.scalar_type());
  LS_CHECK(has_wide_product(), "no product of bf16 into f32");
  multiply({a.size(0), b.size(1), a.size(1)}, matrix_of(a), matrix_of(b),
           out.mutable_data_ptr<float>(), out.stride(0), static_cast<float>(keep));
}

}  // namespace

bool has_wide_product() { return cblas_gemm_bf16bf16f32 != nullptr; }

void multiply(const ProductSize& size, const NarrowMatrix& a, const NarrowMatrix& b, float* out,
              std::int64_t out_stride, float keep) {
  const auto order = [](const NarrowMatrix& x) { return x.by_columns ? kTransposed : kAsIs; };
  cblas_gemm_bf16bf16f32(kRowMajor, order(a), order(b), static_cast<int>(size.m),
                         static_cast<int>(size.n), static_cast<int>(size.k), 1.0F, a.data,
                         static_cast<int>(a.stride), b.data, static_cast<int>(b.stride), keep, out,
                         static_cast<int>(out_stride));
}

void multiply_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b, double keep) {
  if (out.scalar_type() != a.scalar_type())
    multiply_narrow(out, a, b, keep);
  else if (keep == 0.0)
    at::mm_out(out, a, b);
  else
    at::addmm_out(out, out, a, b, keep);
}

}  // namespace lockstep::nn
