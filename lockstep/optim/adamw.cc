#include "lockstep/optim/adamw.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/check.h"

namespace lockstep::optim {

void update(const AdamW& settings, std::int64_t count, const arch::FlatLayout& layout,
            arch::FlatRange range, const at::Tensor& param, const at::Tensor& grad,
            const State& state, double grad_scale) {
  LS_CHECK(param.numel() == range.size() && grad.numel() == range.size(), "a piece of ",
           range.size(), " elements, ", param.numel(), " parameters and ", grad.numel(),
           " gradients");
  const at::Tensor& master = state.master.defined() ? state.master : param;
  if (grad_scale != 1.0) grad.mul_(grad_scale);
  const std::int64_t split =
      std::clamp(layout.decay_end - range.begin, std::int64_t{0}, range.size());
  const auto run = [&](std::int64_t begin, std::int64_t length, double decay) {
    if (length == 0) return;
    const auto part = [&](const at::Tensor& whole) {
      return std::vector{whole.narrow(0, begin, length)};
    };
    const std::vector steps = {at::full({}, static_cast<double>(count),
                                        at::TensorOptions(at::kFloat).device(master.device()))};
    auto params = part(master), grads = part(grad), first = part(state.first),
         second = part(state.second);
    at::_fused_adamw_(params, grads, first, second, {}, steps, settings.lr, settings.beta1,
                      settings.beta2, decay, settings.eps, /*amsgrad=*/false, /*maximize=*/false);
  };
  run(0, split, settings.weight_decay);
  run(split, range.size() - split, 0.0);
  if (state.master.defined()) param.copy_(state.master);
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
