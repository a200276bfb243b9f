// Kernels of our own for CUDA, where LibTorch has none: the operators of optim and nn on a device.
// Pointers are to device memory; a launch does not wait. Compiled by nvcc for sm_80, sm_90 and
// sm_100 without contraction of products and sums, so that elements have the CPU's bits. Never run
// on a GPU: tests/cuda compiles the same source for the host and runs its blocks and threads there.
#pragma once

#include <cstdint>

#include "lockstep/base/dtype.h"
#include "lockstep/optim/element.h"

namespace lockstep::cuda {

using Stream = void*;  // a cudaStream_t

// Of `count` elements. `rounded` gets the nearest bf16 of each parameter; null: there is none.
void launch_update(const optim::AdamWFactors<float>& factors, std::int64_t count, const float* grad,
                   float* param, float* first, float* second, std::uint16_t* rounded,
                   Stream stream);
void launch_update(const optim::AdamWFactors<double>& factors, std::int64_t count,
                   const double* grad, double* param, double* first, double* second,
                   std::uint16_t* rounded, Stream stream);

// Elements that are counted elsewhere: [begin, end) each, ascending, relative to `grad`.
struct Holes {
  static constexpr int kMost = 4;
  std::int64_t begin[kMost] = {}, end[kMost] = {};
};
// Adds the sums of squares over tiles of 256 elements to `words` (base/exact_sum.h).
void launch_add_squares(const float* grad, std::int64_t count, const Holes& holes,
                        std::int64_t* words, Stream stream);
void launch_add_squares(const double* grad, std::int64_t count, const Holes& holes,
                        std::int64_t* words, Stream stream);

// Adds -log_probs of tokens whose label is not -100.
void launch_add_losses(const float* log_probs, const std::int64_t* labels, std::int64_t count,
                       std::int64_t* words, Stream stream);
void launch_add_losses(const double* log_probs, const std::int64_t* labels, std::int64_t count,
                       std::int64_t* words, Stream stream);

// Rotary positions (nn/rope.h), in place. `x` is rows of heads side by side, of f32, f64 or bf16;
// tables are [seq, head_dim / 2] of f64 beside f64, else of f32.
struct Rotation {
  std::int64_t rows, row_stride, heads, head_dim, seq;
  double sign;  // 1, or -1 for the inverse
};
void launch_rotate(DType type, void* x, const void* cosine, const void* sine, const Rotation& of,
                   Stream stream);

// SwiGLU (nn/swiglu.h). `pair` is [rows, 2 columns], all contiguous.
struct GluShape {
  std::int64_t rows, columns;
};
void launch_swiglu(DType type, const void* pair, void* out, const GluShape& of, Stream stream);
void launch_swiglu_grad(DType type, const void* d, const void* pair, void* d_pair,
                        const GluShape& of, Stream stream);

}  // namespace lockstep::cuda
