#include "lockstep/nn/row_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/check.h"
#include "lockstep/base/vector_clones.h"
#include "lockstep/nn/vector_math.h"

namespace lockstep::nn {
namespace {

constexpr std::int64_t kLanes = 16;  // running sums of a row: a fixed order, whatever the vectors
constexpr std::int64_t kGrain = 16384;

template <class W>
LS_INTO_CLONES W greatest_of(const W* x, std::int64_t n) {
  constexpr std::int64_t kColumns = 128;  // enough for the compiler to see a loop
  std::array<W, kColumns> most;
  most.fill(x[0]);
  for (std::int64_t i = 0; i + kColumns <= n; i += kColumns)
    for (std::int64_t k = 0; k < kColumns; ++k) {
      W& so_far = most[k];
      so_far = x[i + k] > so_far ? x[i + k] : so_far;
    }
  W all = most[0];
  for (const W column : most) all = column > all ? column : all;
  for (std::int64_t i = n / kColumns * kColumns; i < n; ++i) all = x[i] > all ? x[i] : all;
  return all;
}

// The sum of e^(x - greatest), each of which is written to `into`.
template <class W>
LS_INTO_CLONES W exponentiate_row(const W* x, std::int64_t n, W greatest, W* into) {
  std::array<W, kLanes> lanes = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const W e = exponential(x[i + lane] - greatest);
      into[i + lane] = e;
      lanes[lane] += e;
    }
  W sum = 0;
  for (; i < n; ++i) sum += into[i] = exponential(x[i] - greatest);
  for (const W lane : lanes) sum += lane;
  return sum;
}

template <class W>
struct RowSums {
  W greatest, sum;
};
template <class W>
LS_INTO_CLONES RowSums<W> sums_of(W* x, std::int64_t n) {
  const W greatest = greatest_of(x, n);
  return {greatest, exponentiate_row(x, n, greatest, x)};
}
LS_VECTOR_CLONES RowSums<float> turn_into_exponentials(float* x, std::int64_t n) {
  return sums_of(x, n);
}
RowSums<double> turn_into_exponentials(double* x, std::int64_t n) { return sums_of(x, n); }

template <class W, class T>
LS_INTO_CLONES void scale_span(const W* x, std::int64_t n, W factor, T* into) {
  for (std::int64_t i = 0; i < n; ++i) into[i] = rounded_to<T>(x[i] * factor);
}
LS_VECTOR_CLONES void scale_row(const float* x, std::int64_t n, float factor, float* into) {
  scale_span(x, n, factor, into);
}
LS_VECTOR_CLONES void scale_row(const float* x, std::int64_t n, float factor, at::BFloat16* into) {
  scale_span(x, n, factor, into);
}
void scale_row(const double* x, std::int64_t n, double factor, double* into) {
  scale_span(x, n, factor, into);
}

// The row's loss.
template <class W>
double use_up(W* x, std::int64_t n, std::int64_t label, RowSums<W>& sums) {
  const auto picked = static_cast<double>(x[label]);
  sums = turn_into_exponentials(x, n);
  return static_cast<double>(sums.greatest) - picked + std::log(static_cast<double>(sums.sum));
}

template <class W, class T>
double use_up(W* x, std::int64_t n, std::int64_t label, double seed, T* grad) {
  RowSums<W> sums;
  const double loss = use_up(x, n, label, sums);
  const auto prob = static_cast<double>(x[label]) / static_cast<double>(sums.sum);
  scale_row(x, n, static_cast<W>(seed / static_cast<double>(sums.sum)), grad);
  grad[label] = rounded_to<T>(static_cast<W>((prob - 1.0) * seed));
  return loss;
}

// Adds body(row, label) for every valid row, in any order: the sum is exact.
template <class Body, class Skip>
void add_rows(const at::Tensor& logits, const at::Tensor& labels, ExactSum& loss, Body body,
              Skip skip) {
  LS_CHECK(logits.is_cpu() && logits.is_contiguous() && labels.is_contiguous() &&
               logits.size(0) == labels.numel(),
           "rows of logits on a CPU");
  const auto* label = labels.const_data_ptr<std::int64_t>();
  const at::Tensor losses = at::empty({labels.numel()}, at::kDouble);
  auto* made = losses.mutable_data_ptr<double>();
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / logits.size(1));
  at::parallel_for(0, labels.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      if (label[i] == kIgnored)
        skip(i);
      else
        made[i] = body(i, label[i]);
  });
  for (std::int64_t i = 0; i < labels.numel(); ++i)
    if (label[i] != kIgnored) loss.add(made[i]);
}

template <class W>
void add_losses_as(const at::Tensor& logits, const at::Tensor& labels, ExactSum& loss) {
  const std::int64_t n = logits.size(1);
  auto* x = logits.mutable_data_ptr<W>();
  const auto body = [&](std::int64_t i, std::int64_t label) {
    RowSums<W> sums;
    return use_up(x + i * n, n, label, sums);
  };
  add_rows(logits, labels, loss, body, [](std::int64_t) {});
}

template <class W, class T>
void add_losses_as(const at::Tensor& logits, const at::Tensor& labels, double seed,
                   const at::Tensor& grad, ExactSum& loss) {
  const std::int64_t n = logits.size(1);
  auto* x = logits.mutable_data_ptr<W>();
  auto* d = grad.mutable_data_ptr<T>();
  add_rows(
      logits, labels, loss,
      [&](std::int64_t i, std::int64_t label) {
        return use_up(x + i * n, n, label, seed, d + i * n);
      },
      [&](std::int64_t i) { std::fill_n(d + i * n, n, rounded_to<T>(0.0F)); });
}

}  // namespace

void add_row_losses(const at::Tensor& logits, const at::Tensor& labels, ExactSum& loss) {
  if (logits.scalar_type() == at::kFloat) return add_losses_as<float>(logits, labels, loss);
  add_losses_as<double>(logits, labels, loss);
}

void add_row_losses(const at::Tensor& logits, const at::Tensor& labels, double seed,
                    const at::Tensor& grad, ExactSum& loss) {
  if (grad.scalar_type() == at::kBFloat16)
    return add_losses_as<float, at::BFloat16>(logits, labels, seed, grad, loss);
  if (logits.scalar_type() == at::kFloat)
    return add_losses_as<float, float>(logits, labels, seed, grad, loss);
  add_losses_as<double, double>(logits, labels, seed, grad, loss);
}

}  // namespace lockstep::nn
