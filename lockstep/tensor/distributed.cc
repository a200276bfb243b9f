#include "lockstep/tensor/distributed.h"

#include <ATen/ops/empty.h>

#include "lockstep/base/check.h"
#include "lockstep/tensor/as_buffer.h"

namespace lockstep::tensor {
namespace {

mesh::TensorState require(const Result<mesh::TensorState>& state, const AxisGroup& group) {
  LS_CHECK(state.ok(), group.comm.describe(), ": ", state.error().message);
  return *state;
}

mesh::Axis first_of(mesh::AxisSet axes) {
  for (int i = 0; i < mesh::kNumAxes; ++i)
    if (axes.has(static_cast<mesh::Axis>(i))) return static_cast<mesh::Axis>(i);
  fail_check("a group runs along an axis", __FILE__, __LINE__, "");
}

}  // namespace

Distributed all_gather(AxisGroup group, const Distributed& tensor, Deadline deadline) {
  const mesh::TensorState after = require(tensor.state.all_gather(group.axes), group);
  const std::int64_t dim = tensor.state.on(first_of(group.axes)).dim;
  std::vector<std::int64_t> shape = tensor.local.sizes().vec();
  shape.insert(shape.begin(), group.comm.size());
  const at::Tensor pieces = at::empty(shape, tensor.local.options());
  group.comm.all_gather(as_buffer(tensor.local), as_buffer(pieces), deadline).wait();
  // Pieces arrive one after another; along dim 0 that is the tensor itself, and no copy is made.
  return {pieces.movedim(0, dim).flatten(dim, dim + 1).contiguous(), after};
}

Distributed reduce_scatter(AxisGroup group, const Distributed& tensor, std::int32_t dim,
                           Deadline deadline) {
  const mesh::TensorState after = require(tensor.state.reduce_scatter(group.axes, dim), group);
  const std::int64_t size = group.comm.size();
  LS_CHECK(tensor.local.size(dim) % size == 0, group.comm.describe(), ": dim ", dim, " of length ",
           tensor.local.size(dim), " does not divide by ", size);
  const at::Tensor pieces = tensor.local.unflatten(dim, {size, tensor.local.size(dim) / size})
                                .movedim(dim, 0)
                                .contiguous();
  const at::Tensor own = at::empty(pieces.sizes().slice(1), pieces.options());
  group.comm.reduce_scatter(as_buffer(pieces), as_buffer(own), deadline).wait();
  return {own, after};
}

Distributed all_reduce(AxisGroup group, const Distributed& tensor, Deadline deadline) {
  const mesh::TensorState after = require(tensor.state.all_reduce(group.axes), group);
  const at::Tensor sum = tensor.local.clone();
  group.comm.all_reduce(as_buffer(sum), deadline).wait();
  return {sum, after};
}

}  // namespace lockstep::tensor
