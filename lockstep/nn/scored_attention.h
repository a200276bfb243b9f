// Causal attention whose scores are capped (Gemma 2, arXiv 2408.00118, section 2), or whose queries
// look back on a window of keys only (Mistral, arXiv 2310.06825, section 2), and its gradients. No
// kernel of LibTorch's has these on a CPU. Scores of a few queries are written down, in f32 or
// wider, for one head at a time (model::ScoreTiles), so that a head's bits depend on that head
// alone. Heads are as in attention.h. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/model/context.h"
#include "lockstep/nn/attention.h"

namespace lockstep::nn {

struct Scores {
  double scale = 1.0;       // of products of queries and keys
  double cap = 0.0;         // c: scores become c tanh(scores / c); 0: they stay
  std::int64_t window = 0;  // keys a query sees at most, itself included; 0: all before it
};

// Writes `out`, [T, heads x head_dim], and `lse`, [batch, heads, seq].
void scored_attention(const HeadTensors& of, const Scores& scores, const at::Tensor& out,
                      const at::Tensor& lse);
// Writes the gradients of all three `into` tensors like `of`, from that of `out`.
void scored_attention_grad(const HeadTensors& of, const Scores& scores, const at::Tensor& out,
                           const at::Tensor& lse, const at::Tensor& d_out, const HeadTensors& into);

// Of the last tokens of one sequence: keys belong to all of it, queries to the last `of.q.size(1)`
// of them.
Attended attention_over(const HeadTensors& of, const Scores& scores);

// The same over the keys of one rank of a context group, to which `of.k` and `of.v` belong. What
// adds up over ranks is as wide as `lse`: `out`, and the gradient of queries. `is_first`: nothing
// has been added yet, and the keys are those of the queries' rank.
void add_attention(const HeadTensors& of, const Scores& scores,
                   const std::vector<model::AttentionBlock>& blocks, bool is_first,
                   const at::Tensor& out, const at::Tensor& lse);
// `out`: over all keys. Gradients of keys and values are written.
void add_attention_grad(const HeadTensors& of, const Scores& scores,
                        const std::vector<model::AttentionBlock>& blocks, bool is_first,
                        const at::Tensor& out, const at::Tensor& lse, const at::Tensor& d_out,
                        const HeadTensors& into);

}  // namespace lockstep::nn
