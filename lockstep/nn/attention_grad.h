// The gradients of causal attention's queries, keys and values where these are bf16 (Dao,
// "FlashAttention-2", arXiv 2307.08691, section 3.2). Tile by tile, products of bf16 added up in
// f32 (wide_product.h): scores, probabilities and their gradients are f32, rounded to be
// multiplied; each result is rounded once.
//
// LibTorch's kernel adds parts of the results in bf16, and makes a new oneDNN primitive for every
// product of a tile, which takes most of its time (docs/performance.md).
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/nn/attention.h"

namespace lockstep::nn {

// Writes `into`, which is like `of`; `out` and `d_out` are like `of.q`, `lse` as in attention.h.
// Takes model::AttentionTiles for every intra-op thread, among which the heads of keys are split.
// REQUIRES: has_wide_product(). Any thread.
void attention_grad(const HeadTensors& of, const at::Tensor& out, const at::Tensor& lse,
                    const at::Tensor& d_out, const HeadTensors& into);

}  // namespace lockstep::nn
