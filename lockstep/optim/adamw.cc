#include "lockstep/optim/adamw.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/check.h"
#include "lockstep/base/vector_clones.h"

namespace lockstep::optim {
namespace {

constexpr std::int64_t kGrain = 16384;  // elements worth another thread

template <class T>
struct Elements {
  T *param, *first, *second;
  const T* grad;
  Elements(const at::Tensor& master, const State& state, const at::Tensor& gradient,
           std::int64_t at)
      : param(master.mutable_data_ptr<T>() + at),
        first(state.first.mutable_data_ptr<T>() + at),
        second(state.second.mutable_data_ptr<T>() + at),
        grad(gradient.const_data_ptr<T>() + at) {}
};

template <class T>
LS_INTO_CLONES void update_span(const AdamWFactors<T>& f, const Elements<T>& of, std::int64_t n) {
  T* __restrict__ param = of.param;
  T* __restrict__ first = of.first, * __restrict__ second = of.second;
  const T* __restrict__ grad = of.grad;
  for (std::int64_t i = 0; i < n; ++i) {
    T p = param[i], m = first[i], v = second[i];
    update_element(f, grad[i], p, m, v);
    first[i] = m;
    second[i] = v;
    param[i] = p;
  }
}
LS_VECTOR_CLONES void update_elements(const AdamWFactors<float>& f, const Elements<float>& of,
                                      std::int64_t n) {
  update_span(f, of, n);
}
LS_VECTOR_CLONES void update_elements(const AdamWFactors<double>& f, const Elements<double>& of,
                                      std::int64_t n) {
  update_span(f, of, n);
}

LS_VECTOR_CLONES void round_elements(const float* from, std::int64_t n, at::BFloat16* into) {
  for (std::int64_t i = 0; i < n; ++i) into[i] = static_cast<at::BFloat16>(from[i]);
}

// Elements [begin, end) in pieces that a core's cache holds, so that rounding reads them from
// there.
template <class T>
void update_range(const AdamWFactors<T>& f, const at::Tensor& param, const at::Tensor& grad,
                  const State& state, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kPiece = 2048;
  const bool has_master = state.master.defined();
  for (std::int64_t at = begin; at < end; at += kPiece) {
    const std::int64_t n = std::min(kPiece, end - at);
    const Elements<T> elements(has_master ? state.master : param, state, grad, at);
    update_elements(f, elements, n);
    if constexpr (sizeof(T) == sizeof(float))
      if (has_master)
        round_elements(elements.param, n, param.mutable_data_ptr<at::BFloat16>() + at);
  }
}

// Of one update, and the elements whose weight decay this is.
struct Span {
  std::int64_t begin, end;
  double decay;
};

template <class T>
void update_as(const AdamW& settings, std::int64_t count, const Span& span, const at::Tensor& param,
               const at::Tensor& grad, const State& state, double grad_scale) {
  const AdamWFactors<T> factors = factors_of<T>(settings, count, span.decay, grad_scale);
  at::parallel_for(span.begin, span.end, kGrain, [&](std::int64_t begin, std::int64_t end) {
    update_range(factors, param, grad, state, begin, end);
  });
}

void update_on_cpu(const AdamW& settings, std::int64_t count, const Span& span,
                   const at::Tensor& param, const at::Tensor& grad, const State& state,
                   double grad_scale) {
  if (grad.scalar_type() == at::kDouble)
    update_as<double>(settings, count, span, param, grad, state, grad_scale);
  else
    update_as<float>(settings, count, span, param, grad, state, grad_scale);
}

// The same as an operator, which an accelerator has a kernel of its own for.
using Op = void(at::Tensor& param, const at::Tensor& grad, at::Tensor& first, at::Tensor& second,
                const std::optional<at::Tensor>& master, at::ArrayRef<double> settings,
                std::int64_t count, double grad_scale);
void update_op(at::Tensor& param, const at::Tensor& grad, at::Tensor& first, at::Tensor& second,
               const std::optional<at::Tensor>& master, at::ArrayRef<double> settings,
               std::int64_t count, double grad_scale) {
  const AdamW of = {settings[0], settings[1], settings[2], settings[3], settings[4]};
  update_on_cpu(of, count, {0, param.numel(), of.weight_decay}, param, grad,
                {first, second, master.value_or(at::Tensor())}, grad_scale);
}
TORCH_LIBRARY_FRAGMENT(lockstep, library) {
  library.def(
      "adamw_(Tensor(a!) param, Tensor grad, Tensor(b!) first, Tensor(c!) second, "
      "Tensor(d!)? master, float[] settings, int count, float grad_scale) -> ()");
}
TORCH_LIBRARY_IMPL(lockstep, CPU, library) { library.impl("adamw_", TORCH_FN(update_op)); }

void update_on_device(const AdamW& settings, std::int64_t count, const Span& span,
                      const at::Tensor& param, const at::Tensor& grad, const State& state,
                      double grad_scale) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("lockstep::adamw_", "").typed<Op>();
  const auto piece = [&](const at::Tensor& of) {
    return of.narrow(0, span.begin, span.end - span.begin);
  };
  at::Tensor own = piece(param), first = piece(state.first), second = piece(state.second);
  op.call(own, piece(grad), first, second,
          state.master.defined() ? std::optional(piece(state.master)) : std::nullopt,
          {settings.lr, settings.beta1, settings.beta2, settings.eps, span.decay}, count,
          grad_scale);
}

}  // namespace

void update(const AdamW& settings, std::int64_t count, const model::FlatLayout& layout,
            model::FlatRange range, const at::Tensor& param, const at::Tensor& grad,
            const State& state, double grad_scale) {
  LS_CHECK(param.numel() == range.size() && grad.numel() == range.size(), "a piece of ",
           range.size(), " elements, ", param.numel(), " parameters and ", grad.numel(),
           " gradients");
  LS_CHECK(!state.master.defined() || param.scalar_type() == at::kBFloat16,
           "a master of what is not bf16");
  const auto within = [&](std::int64_t at) {
    return std::clamp(at - range.begin, std::int64_t{0}, range.size());
  };
  const std::int64_t decay_end = within(layout.decay_end);
  const std::int64_t params_end = std::max(decay_end, within(layout.params.back().end()));
  for (const Span& span :
       {Span{0, decay_end, settings.weight_decay}, Span{decay_end, params_end, 0.0}})
    if (span.begin < span.end)
      (param.is_cpu() ? update_on_cpu : update_on_device)(settings, count, span, param, grad, state,
                                                          grad_scale);
}

double largest_move(const AdamW& settings, std::int64_t count) {
  double sum = 0, first_weights = 0, second_weights = 0;
  double first = 1, second = 1;  // weights of the gradient of so many updates ago
  for (std::int64_t ago = 0; ago < count; ++ago) {
    sum += first * first / second;
    first_weights += first;
    second_weights += second;
    first *= settings.beta1;
    second *= settings.beta2;
  }
  return std::sqrt(sum * second_weights) / first_weights;
}

}  // namespace lockstep::optim
