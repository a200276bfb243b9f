#include "lockstep/nn/pass_run.h"

#include <ATen/core/DimVector.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/tensor/as_buffer.h"
#include "lockstep/tensor/view.h"

namespace lockstep::nn {

using parts::Dim;
using parts::Elem;
using tensor::view_of;

at::Tensor heads_in_row(const at::Tensor& x) {
  return view_of(x, {x.size(0) * x.size(1), x.size(2) * x.size(3)}, {x.stride(1), 1}, 0);
}

at::Tensor PassRun::value(parts::ValueId id) const {
  const parts::Place& place = pass_.places[static_cast<std::size_t>(id)];
  const at::Tensor& held = memory_[static_cast<std::size_t>(place.storage)];
  LS_CHECK(held.defined(), values_[id].name, " is not there for ", to_text(part_->kind));
  const std::vector<Dim>& dims = values_[id].dims;
  if (place.slice >= 0) {
    const std::int64_t row = held.stride(0), heads = sizes[dims[1]], head_dim = sizes[dims[2]];
    return view_of(held, {sizes[dims[0]] / sizes.seq, sizes.seq, heads, head_dim},
                   {sizes.seq * row, row, head_dim, 1}, place.column);
  }
  if (part_->repeats && (dims[0] == Dim::kT || dims[0] == Dim::kP))
    return view_of(held, {sizes[Dim::kC], held.size(1)}, held.strides(),
                   first_row_ * held.stride(0));
  return held;
}

at::Tensor PassRun::turn(std::size_t i) {
  const parts::Place& from = pass_.places[static_cast<std::size_t>(part_->in[i])];
  const parts::Place& into = pass_.places[static_cast<std::size_t>(part_->out[i])];
  if (from.storage == into.storage && from.slice == into.slice) return in(i);
  put(i, in(i).clone());
  return out(i);
}

void PassRun::put(std::size_t i, at::Tensor made) {
  LS_CHECK(!shares_memory(i), values_[part_->out[i]].name, " has memory already");
  memory(part_->out[i]) = std::move(made);
}

at::Tensor PassRun::make(std::size_t i) {
  const parts::ValueId storage = pass_.storage(part_->out[i]);
  const parts::Value& of = values_[storage];
  at::DimVector shape;
  for (const Dim dim : of.dims) shape.push_back(sizes[dim]);
  if (of.dims.back() == Dim::kD) {  // heads, by sequence
    shape[0] = sizes.seq_of(of.dims[0]);
    shape.insert(shape.begin(), sizes[of.dims[0]] / shape[0]);
  }
  const at::Tensor like = part_->in.empty() ? inputs.params.own : in(0);
  memory(storage) = at::empty(shape, like.options().dtype(type_of(of.elem)));
  return out(i);
}

const std::vector<std::int64_t>& PassRun::host_numbers(std::size_t i) {
  const auto [known, is_new] = host_numbers_.try_emplace(part_->in[i]);
  if (is_new) {
    const at::Tensor own = in(i), host = own.is_cpu() ? own : own.cpu();
    const auto* const numbers = host.const_data_ptr<std::int64_t>();
    known->second.assign(numbers, numbers + host.numel());
  }
  return known->second;
}

const RankGroup& PassRun::group() const {
  switch (part_->group) {
    case parts::Group::kTensor:
      return unit.group;
    case parts::Group::kContext:
      return unit.context;
    case parts::Group::kExpertTensor:
      return unit.experts.tensor;
    case parts::Group::kExpert:
      break;
  }
  return unit.experts;
}

void PassRun::wait() {
  const auto found =
      std::ranges::find(under_way_, part_->in[0], &std::pair<parts::ValueId, comm::Work>::first);
  LS_CHECK(found != under_way_.end(), values_[part_->in[0]].name, " is not under way");
  found->second.wait();
  under_way_.erase(found);
}

at::ScalarType PassRun::type_of(Elem elem) const {
  switch (elem) {
    case Elem::kCompute:
      return tensor::scalar_type_of(unit.dtype);
    case Elem::kWide:
      return tensor::scalar_type_of(wide_type(unit.dtype));
    case Elem::kIndex:
      return at::kLong;
    case Elem::kFlag:
      break;
  }
  return at::kBool;
}

const LayerPlace& PassRun::layer() const {
  const auto found = std::ranges::find(unit.layers, part_->param, &LayerPlace::name);
  LS_CHECK(found != unit.layers.end(), "no parameters ", part_->param);
  return *found;
}

at::Tensor PassRun::labels() const {
  return view_of(inputs.labels, {sizes[Dim::kC]}, {1}, first_row_);
}

}  // namespace lockstep::nn
