// Rows of contiguous tensors as elements of their type, for kernels that are written by hand.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <type_traits>

#include "lockstep/base/check.h"

namespace lockstep::nn {

template <class T>
using WideOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Calls body(T{}) for the type of the elements of `x`.
template <class Body>
void for_type_of(const at::Tensor& x, const Body& body) {
  switch (x.scalar_type()) {
    case at::kDouble:
      return body(double{});
    case at::kFloat:
      return body(float{});
    default:
      LS_CHECK(x.scalar_type() == at::kBFloat16, "rows of elements that no kernel takes");
      return body(at::BFloat16{});
  }
}

template <class T>
const T* data_of(const at::Tensor& x) {
  LS_CHECK(x.is_contiguous(), "rows that are not contiguous");
  return x.const_data_ptr<T>();
}
template <class T>
T* memory_of(const at::Tensor& x) {
  LS_CHECK(x.is_contiguous(), "rows that are not contiguous");
  return x.mutable_data_ptr<T>();
}

// Calls body(begin, end) for all of [0, count), on the pass's threads, each with at least `grain`.
void for_ranges(std::int64_t count, std::int64_t grain,
                const std::function<void(std::int64_t, std::int64_t)>& body);

// Calls body(row) for each, in any order.
void for_rows(std::int64_t rows, std::int64_t columns, const auto& body) {
  constexpr std::int64_t kGrain = 16384;  // elements that a thread takes at a time
  for_ranges(rows, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, columns)),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t row = begin; row < end; ++row) body(row);
             });
}

}  // namespace lockstep::nn
