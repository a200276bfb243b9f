#include "lockstep/nn/gelu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "lockstep/base/check.h"
#include "lockstep/base/vector_clones.h"
#include "lockstep/nn/vector_math.h"

namespace lockstep::nn {
namespace {

constexpr double kSlope = 0.79788456080286535588;  // (2 / pi)^(1/2)
constexpr double kCubic = 0.044715;
constexpr std::int64_t kGrain = 16384;  // elements worth another thread

template <class W>
struct Sigmoid {
  W below, above;  // of 2u: 1 - above, and 1 / (1 + e^(-2u))
};
template <class W>
LS_INTO_CLONES Sigmoid<W> sigmoid(W x) {
  const W e =
      exponential(x * (static_cast<W>(-2 * kSlope) + static_cast<W>(-2 * kSlope * kCubic) * x * x));
  const W above = 1 / (1 + e);
  return {e * above, above};
}

template <class W, class T>
LS_INTO_CLONES void forward_span(const T* x, std::int64_t n, T* y) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto wide = static_cast<W>(x[i]);
    y[i] = rounded_to<T>(wide * sigmoid(wide).above);
  }
}

// The derivative is s + x s (1 - s) 2u' for the sigmoid s of 2u.
template <class W>
LS_INTO_CLONES W slope_of(W x, Sigmoid<W> s) {
  const W slope = static_cast<W>(2 * kSlope) + static_cast<W>(6 * kSlope * kCubic) * x * x;
  return s.above + x * (s.above * s.below) * slope;
}
template <class W, class T>
LS_INTO_CLONES void grad_span(const T* x, std::int64_t n, T* d) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto wide = static_cast<W>(x[i]);
    d[i] = rounded_to<T>(static_cast<W>(d[i]) * slope_of(wide, sigmoid(wide)));
  }
}

// Of a row: gate and up side by side.
template <class W, class T>
LS_INTO_CLONES void gated_span(const T* pair, std::int64_t n, T* y) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto gate = static_cast<W>(pair[i]);
    y[i] = rounded_to<T>(gate * sigmoid(gate).above * static_cast<W>(pair[n + i]));
  }
}
template <class W, class T>
LS_INTO_CLONES void gated_grad_span(const T* pair, std::int64_t n, const T* d, T* into) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto gate = static_cast<W>(pair[i]), wide = static_cast<W>(d[i]);
    const Sigmoid<W> s = sigmoid(gate);
    into[i] = rounded_to<T>(wide * static_cast<W>(pair[n + i]) * slope_of(gate, s));
    into[n + i] = rounded_to<T>(wide * (gate * s.above));
  }
}

LS_VECTOR_CLONES void forward(const at::BFloat16* x, std::int64_t n, at::BFloat16* y) {
  forward_span<float>(x, n, y);
}
LS_VECTOR_CLONES void forward(const float* x, std::int64_t n, float* y) {
  forward_span<float>(x, n, y);
}
void forward(const double* x, std::int64_t n, double* y) { forward_span<double>(x, n, y); }

LS_VECTOR_CLONES void grad(const at::BFloat16* x, std::int64_t n, at::BFloat16* d) {
  grad_span<float>(x, n, d);
}
LS_VECTOR_CLONES void grad(const float* x, std::int64_t n, float* d) { grad_span<float>(x, n, d); }
void grad(const double* x, std::int64_t n, double* d) { grad_span<double>(x, n, d); }

LS_VECTOR_CLONES void gated(const at::BFloat16* x, std::int64_t n, at::BFloat16* y) {
  gated_span<float>(x, n, y);
}
LS_VECTOR_CLONES void gated(const float* x, std::int64_t n, float* y) {
  gated_span<float>(x, n, y);
}
void gated(const double* x, std::int64_t n, double* y) { gated_span<double>(x, n, y); }

LS_VECTOR_CLONES void gated_grad(const at::BFloat16* x, std::int64_t n, const at::BFloat16* d,
                                 at::BFloat16* into) {
  gated_grad_span<float>(x, n, d, into);
}
LS_VECTOR_CLONES void gated_grad(const float* x, std::int64_t n, const float* d, float* into) {
  gated_grad_span<float>(x, n, d, into);
}
void gated_grad(const double* x, std::int64_t n, const double* d, double* into) {
  gated_grad_span<double>(x, n, d, into);
}

// Calls body(row) for all rows, with a null pointer of their type first.
void for_gated_rows(const at::Tensor& pair, const at::Tensor& product, auto body) {
  LS_CHECK(pair.is_cpu() && pair.is_contiguous() && product.is_contiguous() &&
               pair.numel() == 2 * product.numel() && pair.scalar_type() == product.scalar_type(),
           "GeGLU of contiguous rows on a CPU");
  const auto all = [&](auto type) {
    const std::int64_t rows = std::max<std::int64_t>(1, kGrain / product.size(1));
    at::parallel_for(0, product.size(0), rows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) body(type, row);
    });
  };
  if (pair.scalar_type() == at::kBFloat16) return all(at::BFloat16());
  if (pair.scalar_type() == at::kFloat) return all(float());
  LS_CHECK(pair.scalar_type() == at::kDouble, "GeGLU of ", pair.scalar_type());
  all(double());
}

// Calls body(elements of x, how many, elements of y) for spans of all elements.
template <class T, class Body>
void for_spans(const at::Tensor& x, const at::Tensor& y, Body body) {
  const T* from = x.const_data_ptr<T>();
  T* into = y.mutable_data_ptr<T>();
  at::parallel_for(0, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    body(from + begin, end - begin, into + begin);
  });
}

template <class Body>
void for_type(const at::Tensor& x, const at::Tensor& y, Body body) {
  LS_CHECK(x.is_cpu() && x.is_contiguous() && y.is_contiguous() && x.numel() == y.numel() &&
               x.scalar_type() == y.scalar_type(),
           "GELU of contiguous elements on a CPU");
  if (x.scalar_type() == at::kBFloat16) return for_spans<at::BFloat16>(x, y, body);
  if (x.scalar_type() == at::kFloat) return for_spans<float>(x, y, body);
  LS_CHECK(x.scalar_type() == at::kDouble, "GELU of ", x.scalar_type());
  for_spans<double>(x, y, body);
}

}  // namespace

at::Tensor geglu(const at::Tensor& pair) {
  const std::int64_t n = pair.size(1) / 2;
  at::Tensor y = at::empty({pair.size(0), n}, pair.options());
  for_gated_rows(pair, y, [&](auto type, std::int64_t row) {
    using T = decltype(type);
    gated(pair.const_data_ptr<T>() + 2 * row * n, n, y.mutable_data_ptr<T>() + row * n);
  });
  return y;
}

at::Tensor geglu_grad(const at::Tensor& pair, const at::Tensor& d) {
  const std::int64_t n = d.size(1);
  at::Tensor into = at::empty_like(pair);
  for_gated_rows(pair, d, [&](auto type, std::int64_t row) {
    using T = decltype(type);
    gated_grad(pair.const_data_ptr<T>() + 2 * row * n, n, d.const_data_ptr<T>() + row * n,
               into.mutable_data_ptr<T>() + 2 * row * n);
  });
  return into;
}

at::Tensor gelu(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  for_type(x, y, [](const auto* from, std::int64_t n, auto* into) { forward(from, n, into); });
  return y;
}

void gelu_grad(const at::Tensor& x, const at::Tensor& d) {
  for_type(x, d, [](const auto* from, std::int64_t n, auto* into) { grad(from, n, into); });
}

}  // namespace lockstep::nn
