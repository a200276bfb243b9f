#include "lockstep/nn/softcap.h"

#include <ATen/Parallel.h>

#include <cstdint>

#include "lockstep/base/check.h"
#include "lockstep/base/vector_clones.h"
#include "lockstep/nn/vector_math.h"

namespace lockstep::nn {
namespace {

constexpr std::int64_t kGrain = 16384;  // elements worth another thread

template <class W>
LS_INTO_CLONES void cap_span(W* x, std::int64_t n, W cap, W* slope) {
  for (std::int64_t i = 0; i < n; ++i) {
    const W t = hyperbolic_tangent(x[i] / cap);
    x[i] = cap * t;
    if (slope != nullptr) slope[i] = 1 - t * t;
  }
}
LS_VECTOR_CLONES void cap_rows(float* x, std::int64_t n, float cap, float* slope) {
  cap_span(x, n, cap, slope);
}
void cap_rows(double* x, std::int64_t n, double cap, double* slope) { cap_span(x, n, cap, slope); }

template <class W, class T>
LS_INTO_CLONES void grad_span(T* d, std::int64_t n, const W* slope) {
  for (std::int64_t i = 0; i < n; ++i) d[i] = rounded_to<T>(static_cast<W>(d[i]) * slope[i]);
}
LS_VECTOR_CLONES void grad_rows(at::BFloat16* d, std::int64_t n, const float* slope) {
  grad_span(d, n, slope);
}
LS_VECTOR_CLONES void grad_rows(float* d, std::int64_t n, const float* slope) {
  grad_span(d, n, slope);
}
void grad_rows(double* d, std::int64_t n, const double* slope) { grad_span(d, n, slope); }

template <class W>
void cap_all(const at::Tensor& x, double cap, const at::Tensor& slope) {
  W* const at = x.mutable_data_ptr<W>();
  W* const slopes = slope.defined() ? slope.mutable_data_ptr<W>() : nullptr;
  at::parallel_for(0, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    cap_rows(at + begin, end - begin, static_cast<W>(cap),
             slopes == nullptr ? nullptr : slopes + begin);
  });
}

template <class W, class T>
void grad_all(const at::Tensor& d, const at::Tensor& slope) {
  T* const at = d.mutable_data_ptr<T>();
  const W* const slopes = slope.const_data_ptr<W>();
  at::parallel_for(0, d.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    grad_rows(at + begin, end - begin, slopes + begin);
  });
}

}  // namespace

void softcap(const at::Tensor& x, double cap, const at::Tensor& slope) {
  LS_CHECK(x.is_cpu() && x.is_contiguous() && (!slope.defined() || slope.is_contiguous()),
           "a soft cap of contiguous elements on a CPU");
  if (x.scalar_type() == at::kFloat) return cap_all<float>(x, cap, slope);
  cap_all<double>(x, cap, slope);
}

void softcap_grad(const at::Tensor& d, const at::Tensor& slope) {
  LS_CHECK(d.is_cpu() && d.is_contiguous() && slope.is_contiguous() && d.numel() == slope.numel(),
           "a soft cap of contiguous elements on a CPU");
  if (d.scalar_type() == at::kBFloat16) return grad_all<float, at::BFloat16>(d, slope);
  if (d.scalar_type() == at::kFloat) return grad_all<float, float>(d, slope);
  grad_all<double, double>(d, slope);
}

}  // namespace lockstep::nn
