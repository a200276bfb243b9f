// Causal attention by LibTorch's flash kernel on a CPU, and its gradients. Scores are divided by
// the root of head_dim. Heads are [batch, seq, heads, head_dim], elements of a head side by side;
// `k` and `v` may have fewer of them, each for as many consecutive ones of `q`. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

struct HeadTensors {
  at::Tensor q, k, v;
};

struct Attended {
  at::Tensor out;  // [T, heads x head_dim]
  at::Tensor lse;  // [batch, heads, seq], f32 or the compute type if that is wider: the logarithm
                   // of the sum of exponentials of every query's scores
};
Attended attention(const HeadTensors& of);

// Of a query that sees all keys, with products times `scale`; `of.q` has one token.
Attended attention_of_one(const HeadTensors& of, double scale);

// The gradients of all three from that of `out`; LibTorch's kernel, for f32 and wider.
HeadTensors attention_grad(const HeadTensors& of, const at::Tensor& out, const at::Tensor& lse,
                           const at::Tensor& d_out);

}  // namespace lockstep::nn
