#include "lockstep/tensor/view.h"

#include <utility>

namespace lockstep::tensor {

at::Tensor view_of(const at::Tensor& of, at::IntArrayRef sizes, at::IntArrayRef strides,
                   std::int64_t offset) {
  auto made = c10::make_intrusive<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(of.storage()), of.key_set(), of.dtype());
  made->set_sizes_and_strides(sizes, strides, of.storage_offset() + offset);
  return at::Tensor(std::move(made));
}

at::Tensor transposed(const at::Tensor& x) {
  return view_of(x, {x.size(1), x.size(0)}, {x.stride(1), x.stride(0)}, 0);
}

}  // namespace lockstep::tensor
