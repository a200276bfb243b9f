#include "lockstep/verify/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace lockstep::verify {
namespace {

double max_abs(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0.0 : tensor.abs().max().item<double>();
}

double relative(double difference, double scale) {
  if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
  if (difference == 0) return 0;
  return scale == 0 ? std::numeric_limits<double>::infinity() : difference / scale;
}

// `error_of(unit, from, length)` is the error of those elements of a unit; the largest wins.
template <class ErrorOf>
Difference worst_of(const model::Model& model, const ErrorOf& error_of) {
  const std::vector<model::FlatLayout> layouts = model::flat_layouts(model);
  Difference worst;
  for (int unit = 0; unit < model.num_units(); ++unit) {
    const auto kind = static_cast<std::size_t>(model.order[static_cast<std::size_t>(unit)]);
    for (const model::FlatParam& place : layouts[kind].params) {
      const double error = error_of(unit, place.offset, place.numel);
      if (!(error > worst.error)) continue;
      const model::Param& param = model.unit(unit).params[static_cast<std::size_t>(place.param)];
      worst = {error, model::name_at(param.name, model::Model::layer(unit))};
    }
  }
  return worst;
}

at::Tensor difference(const StepImage& got, const StepImage& reference, int unit, Role role,
                      std::int64_t from, std::int64_t length) {
  return got.at(unit, role)
      .narrow(0, from, length)
      .sub(reference.at(unit, role).narrow(0, from, length));
}

}  // namespace

Difference compare(const model::Model& model, const StepImage& got, const StepImage& reference,
                   Role role, double lr) {
  return worst_of(model, [&](int unit, std::int64_t from, std::int64_t length) {
    const double scale =
        std::max(max_abs(reference.at(unit, role)), role == Role::kParameter ? lr : 0.0);
    return relative(max_abs(difference(got, reference, unit, role, from, length)), scale);
  });
}

Difference compare_scalars(const StepImage& got, const StepImage& reference) {
  Difference worst;
  for (const auto& [name, mine, theirs] :
       {std::tuple("loss", got.loss, reference.loss),
        std::tuple("gradient norm", got.grad_norm, reference.grad_norm)}) {
    const double error = relative(std::abs(mine - theirs), std::abs(theirs));
    if (error > worst.error) worst = {error, name};
  }
  return worst;
}

Difference compare_updated(const model::Model& model, const StepImage& got,
                           const StepImage& reference, const optim::AdamW& settings,
                           std::int64_t count) {
  const double correction =
      std::sqrt(1 - std::pow(settings.beta2, static_cast<double>(count)));  // of the root
  return worst_of(model, [&](int unit, std::int64_t from, std::int64_t length) {
    const at::Tensor& second = reference.at(unit, Role::kSecondMoment);
    const double gradient = std::sqrt(max_abs(second)) / correction;
    const double parameter = max_abs(reference.at(unit, Role::kParameter));
    const at::Tensor explained = second.narrow(0, from, length)
                                     .sqrt()
                                     .div_(correction)
                                     .add_(settings.eps)
                                     .reciprocal_()
                                     .mul_(settings.lr * gradient)
                                     .add_(parameter);
    const at::Tensor found = difference(got, reference, unit, Role::kParameter, from, length);
    return relative(max_abs(found.div(explained)), 1.0);
  });
}

Difference compare_reached(const model::Model& model, const StepImage& got,
                           const StepImage& reference, double reach, std::int64_t count) {
  // Half the distance from 1 to the next f32, once for the weights at the start and once an update.
  const double rounding = std::ldexp(static_cast<double>(count + 1), -24);
  return worst_of(model, [&](int unit, std::int64_t from, std::int64_t length) {
    const double apart = reach + rounding * max_abs(reference.at(unit, Role::kParameter));
    return relative(max_abs(difference(got, reference, unit, Role::kParameter, from, length)),
                    apart);
  });
}

}  // namespace lockstep::verify
