#include "lockstep/nn/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/nn/column_sums.h"
#include "lockstep/nn/flat_view.h"
#include "lockstep/nn/wide_rows.h"

namespace lockstep::nn {
namespace {

std::vector<std::string> with(std::initializer_list<std::string> names, const char* ending) {
  std::vector<std::string> all;
  for (const std::string& name : names) all.push_back(name + ending);
  return all;
}

}  // namespace

Linear::Linear(const model::Unit& unit, const model::FlatLayout& flat,
               std::initializer_list<std::string> names, std::int64_t out, std::int64_t in)
    : in_(in), weight_(place_of(unit, flat, with(names, ".weight"))) {
  const std::vector<std::string> biases = with(names, ".bias");
  if (std::ranges::find(unit.params, biases.front(), &model::Param::name) != unit.params.end())
    bias_ = place_of(unit, flat, biases);
  LS_CHECK(weight_.size() == out * in && (!has_bias() || bias_.size() == out), *names.begin(),
           " of ", weight_.size(), " weights and ", bias_.size(), " biases, not [", out, ", ", in,
           "]");
}

at::Tensor Linear::weight(const at::Tensor& params) const {
  return matrix_at(params, weight_, in_);
}

at::Tensor Linear::bias(const at::Tensor& params) const { return vector_at(params, bias_); }

at::Tensor Linear::forward(const at::Tensor& params, const at::Tensor& x) const {
  if (!has_bias()) return at::mm(x, weight(params).t());
  return at::addmm(bias(params), x, weight(params).t());
}

at::Tensor Linear::input_grad(const at::Tensor& params, const at::Tensor& d) const {
  return at::mm(d, weight(params));
}

at::Tensor Linear::bias_grad(const at::Tensor& d) const {
  if (!has_bias()) return {};
  return is_narrow(d) ? column_sums(d) : at::sum(d, 0);
}

void Linear::add_weight_grad(const at::Tensor& grads, const at::Tensor& d, const at::Tensor& x,
                             bool is_first) const {
  add_product(weight(grads), d, x, is_first);
}

void Linear::add_bias_grad(const at::Tensor& grads, const at::Tensor& made, bool is_first) const {
  if (has_bias()) add_value(bias(grads), made, is_first);
}

}  // namespace lockstep::nn
