#include <cuda_bf16.h>

#include <cmath>

#include "lockstep/cuda/launch.cuh"

namespace lockstep::cuda {
namespace {

// Elements and what is computed in: bf16 in f32, rounded where LibTorch's operators would.
__device__ float wide(float x) { return x; }
__device__ double wide(double x) { return x; }
__device__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T, class Wide>
__device__ T rounded(Wide x) {
  return x;
}
template <>
__device__ __nv_bfloat16 rounded<__nv_bfloat16, float>(float x) {
  return __float2bfloat16_rn(x);
}

// A block a row: indices need no division by a row's width.
template <class T, class Wide>
__global__ void rotate(T* x, const Wide* cosine, const Wide* sine, Rotation of) {
  const std::int64_t half = of.head_dim / 2;
  for (std::int64_t row = blockIdx.x; row < of.rows; row += gridDim.x) {
    T* const heads = x + row * of.row_stride;
    const std::int64_t at = row % of.seq * half;
    for (unsigned pair = threadIdx.x; pair < of.heads * half; pair += blockDim.x) {
      const std::int64_t i = pair % half, first = pair / half * of.head_dim + i;
      const Wide a = wide(heads[first]), b = wide(heads[first + half]);
      const Wide c = cosine[at + i], s = sine[at + i] * static_cast<Wide>(of.sign);
      heads[first] = rounded<T>(a * c - b * s);
      heads[first + half] = rounded<T>(b * c + a * s);
    }
  }
}

template <class T>
__global__ void swiglu(const T* pair, T* out, GluShape of) {
  for (std::int64_t row = blockIdx.x; row < of.rows; row += gridDim.x) {
    const T* const gate = pair + row * 2 * of.columns;
    for (std::int64_t i = threadIdx.x; i < of.columns; i += blockDim.x) {
      const auto g = wide(gate[i]), up = wide(gate[i + of.columns]);
      const T silu = rounded<T>(g / (1 + std::exp(-g)));
      out[row * of.columns + i] = rounded<T>(wide(silu) * up);
    }
  }
}

template <class T>
__global__ void swiglu_grad(const T* d, const T* pair, T* d_pair, GluShape of) {
  for (std::int64_t row = blockIdx.x; row < of.rows; row += gridDim.x) {
    const T* const gate = pair + row * 2 * of.columns;
    T* const d_gate = d_pair + row * 2 * of.columns;
    for (std::int64_t i = threadIdx.x; i < of.columns; i += blockDim.x) {
      const auto g = wide(gate[i]), up = wide(gate[i + of.columns]);
      const auto below = 1 + std::exp(-g), s = 1 / below;
      const auto own = wide(d[row * of.columns + i]);
      const T silu = rounded<T>(g / below), d_silu = rounded<T>(own * up);
      d_gate[i] = rounded<T>(wide(d_silu) * s * (1 + g * (1 - s)));
      d_gate[i + of.columns] = rounded<T>(wide(silu) * own);
    }
  }
}

// Calls `body` with a null pointer to elements of this type.
template <class Body>
void for_type(DType type, Body body) {
  switch (type) {
    case DType::kF32:
      return body(static_cast<float*>(nullptr));
    case DType::kF64:
      return body(static_cast<double*>(nullptr));
    case DType::kBF16:
      return body(static_cast<__nv_bfloat16*>(nullptr));
    default:
      throw std::invalid_argument("a CUDA kernel of activations for elements that are no floats");
  }
}

}  // namespace

void launch_rotate(DType type, void* x, const void* cosine, const void* sine, const Rotation& of,
                   Stream stream) {
  if (of.rows == 0) return;
  for_type(type, [&]<class T>(T* /*type*/) {
    using Wide = decltype(wide(T()));
    launch(rotate<T, Wide>, of.rows, stream, static_cast<T*>(x), static_cast<const Wide*>(cosine),
           static_cast<const Wide*>(sine), of);
  });
}

void launch_swiglu(DType type, const void* pair, void* out, const GluShape& of, Stream stream) {
  if (of.rows == 0) return;
  for_type(type, [&]<class T>(T* /*type*/) {
    launch(swiglu<T>, of.rows, stream, static_cast<const T*>(pair), static_cast<T*>(out), of);
  });
}

void launch_swiglu_grad(DType type, const void* d, const void* pair, void* d_pair,
                        const GluShape& of, Stream stream) {
  if (of.rows == 0) return;
  for_type(type, [&]<class T>(T* /*type*/) {
    launch(swiglu_grad<T>, of.rows, stream, static_cast<const T*>(d), static_cast<const T*>(pair),
           static_cast<T*>(d_pair), of);
  });
}

}  // namespace lockstep::cuda
