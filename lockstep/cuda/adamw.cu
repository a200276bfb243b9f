#include <cuda_bf16.h>

#include "lockstep/cuda/launch.cuh"

namespace lockstep::cuda {
namespace {

template <class T>
__global__ void update(optim::AdamWFactors<T> factors, std::int64_t count, const T* grad, T* param,
                       T* first, T* second, __nv_bfloat16* rounded) {
  for (std::int64_t i = first_index(); i < count; i += stride()) {
    T p = param[i], m = first[i], v = second[i];
    optim::update_element(factors, grad[i], p, m, v);
    param[i] = p;
    first[i] = m;
    second[i] = v;
    if (rounded != nullptr) rounded[i] = __float2bfloat16_rn(static_cast<float>(p));
  }
}

template <class T>
void start_update(const optim::AdamWFactors<T>& factors, std::int64_t count, const T* grad,
                  T* param, T* first, T* second, std::uint16_t* rounded, Stream stream) {
  if (count == 0) return;
  launch(update<T>, blocks_for(count), stream, factors, count, grad, param, first, second,
         reinterpret_cast<__nv_bfloat16*>(rounded));
}

}  // namespace

void launch_update(const optim::AdamWFactors<float>& factors, std::int64_t count, const float* grad,
                   float* param, float* first, float* second, std::uint16_t* rounded,
                   Stream stream) {
  start_update(factors, count, grad, param, first, second, rounded, stream);
}
void launch_update(const optim::AdamWFactors<double>& factors, std::int64_t count,
                   const double* grad, double* param, double* first, double* second,
                   std::uint16_t* rounded, Stream stream) {
  start_update(factors, count, grad, param, first, second, rounded, stream);
}

}  // namespace lockstep::cuda
