// Kernels of our own for CUDA, where LibTorch has none: the operators of optim and nn on a device.
// Pointers are to device memory; a launch does not wait. Compiled by nvcc for sm_80, sm_90 and
// sm_100 without contraction of products and sums, so that elements have the CPU's bits. Not yet
// run on a GPU.
#pragma once

#include <cstdint>

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

// Elements that are counted elsewhere: [begin, end) each, ascending, relative to `grad`; at most
// two.
struct Holes {
  std::int64_t begin[2] = {0, 0}, end[2] = {0, 0};
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

}  // namespace lockstep::cuda
