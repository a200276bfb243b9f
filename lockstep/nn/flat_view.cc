#include "lockstep/nn/flat_view.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/nn/wide_product.h"
#include "lockstep/tensor/view.h"

namespace lockstep::nn {

model::FlatRange place_of(const model::Unit& unit, const model::FlatLayout& flat,
                          const std::vector<std::string>& names) {
  model::FlatRange place;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(unit.params, name, &model::Param::name);
    LS_CHECK(found != unit.params.end(), "the unit has no parameter ", name);
    const model::FlatParam& at = flat.of(static_cast<int>(found - unit.params.begin()));
    LS_CHECK(place.size() == 0 || at.offset == place.end, name, " begins at element ", at.offset,
             " of the flat buffer, but the parameter before it ends at ", place.end,
             "; one operation serves both, so they must be adjacent");
    if (place.size() == 0) place.begin = at.offset;
    place.end = at.end();
  }
  return place;
}

at::Tensor vector_at(const at::Tensor& flat, model::FlatRange place) {
  return tensor::view_of(flat, {place.size()}, {1}, place.begin);
}

at::Tensor matrix_at(const at::Tensor& flat, model::FlatRange place, std::int64_t columns) {
  LS_CHECK(place.size() % columns == 0, place.size(), " elements in rows of ", columns);
  return tensor::view_of(flat, {place.size() / columns, columns}, {columns, 1}, place.begin);
}

void add_product(at::Tensor weight_grad, const at::Tensor& d_out, const at::Tensor& input,
                 bool is_first) {
  multiply_into(std::move(weight_grad), tensor::transposed(d_out), input, is_first ? 0.0 : 1.0);
}

void add_value(const at::Tensor& grad, const at::Tensor& value, bool is_first) {
  if (is_first)
    grad.copy_(value);
  else
    grad.add_(value);
}

}  // namespace lockstep::nn
