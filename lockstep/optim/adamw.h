// AdamW (Loshchilov and Hutter, arXiv 1711.05101) on a piece of a unit's flat buffer. Element by
// element, so the same whatever the pieces are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>

#include "lockstep/model/flat_layout.h"
#include "lockstep/optim/element.h"

namespace lockstep::optim {

struct AdamW {
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // of parameters that decay (model::Param::decays)
};

// What update number `count` (from 1) does to an element, with this weight decay.
template <class T>
AdamWFactors<T> factors_of(const AdamW& of, std::int64_t count, double decay, double grad_scale) {
  const auto n = static_cast<double>(count);
  return {.keep_first = static_cast<T>(of.beta1),
          .add_first = static_cast<T>(1 - of.beta1),
          .keep_second = static_cast<T>(of.beta2),
          .add_second = static_cast<T>(1 - of.beta2),
          .keep_param = static_cast<T>(1 - of.lr * decay),
          .step = static_cast<T>(of.lr / (1 - std::pow(of.beta1, n))),
          .root = static_cast<T>(std::sqrt(1 - std::pow(of.beta2, n))),
          .eps = static_cast<T>(of.eps),
          .grad_scale = static_cast<T>(grad_scale)};
}

struct State {
  at::Tensor first, second;  // moments; zero before the first update
  at::Tensor master = {};    // undefined where parameters are as wide as moments: then they are it
};

// Update number `count` (from 1) of elements `range` of the buffer; all tensors hold exactly those.
// What lies behind the last parameter stays. What decays does so by settings.weight_decay. `grad`
// counts as if multiplied by `grad_scale` (clipping). Where there is a master, it is updated and
// `param` becomes its rounding to the nearest: the only place where trained weights are rounded.
// On a device it is the operator lockstep::adamw_. One pass over memory, which is what an update
// takes its time for: 30 bytes of an element in bf16 and 28 in f32, where LibTorch's fused kernel,
// a scaling before and a copy after it are 42 and 36.
void update(const AdamW& settings, std::int64_t count, const model::FlatLayout& layout,
            model::FlatRange range, const at::Tensor& param, const at::Tensor& grad,
            const State& state, double grad_scale);

// The most that update number `count` can move an element for its gradients, in learning rates, eps
// left out: |m| / sqrt(v) of bias-corrected means with weights a and b is at most sqrt(sum a^2 / b)
// (Cauchy and Schwarz), which gradients proportional to a / b reach.
double largest_move(const AdamW& settings, std::int64_t count);

}  // namespace lockstep::optim
