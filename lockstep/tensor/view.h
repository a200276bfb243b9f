// A view of a tensor's memory made without LibTorch's dispatcher, which takes longer than a view is
// worth where a pass makes hundreds: narrow(), view() and t() are two calls and more each.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::tensor {

// `offset` counts elements from where `of` begins. REQUIRES: elements that lie in its memory;
// callers need no version counter and no gradient.
at::Tensor view_of(const at::Tensor& of, at::IntArrayRef sizes, at::IntArrayRef strides,
                   std::int64_t offset);
// Of a matrix.
at::Tensor transposed(const at::Tensor& x);

}  // namespace lockstep::tensor
